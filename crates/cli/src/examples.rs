//! The examples at the end of each command's help.
//!
//! **Why.** Most readers look at the end of a help text first, and copy from there.
//!
//! **How.** One table holds the words of a command and three command lines. [`with_examples`] appends them to the help
//! of each command. A test parses every line with the command's own flags.
//!
//! **Limits.** Lines are not run: files and devices in them are only examples.
//!
//! **Example.** `plimsoll stat --help` ends with three lines that begin with `plimsoll stat`.

use clap::Command;

/// Words after `plimsoll`, and the rest of the line in three examples.
const EXAMPLES: &[(&str, [&str; 3])] = &[
    ("demo", ["", "/mnt/data", "/mnt/data --seed 7 --format json"]),
    ("tune", ["/mnt/data", "/mnt/data --quick -o io-properties.yaml", "--from tune.record --page tune.html"]),
    (
        "test",
        [
            "jobs.yaml --storage /mnt/data --io-properties io-properties.yaml",
            "jobs.fio --duration 1m --format json",
            "jobs.yaml --disk i4i.2xlarge --sweep parallelism=1,4,16,64",
        ],
    ),
    (
        "compare",
        [
            "before.json after.json",
            "a1.json,a2.json,a3.json b1.json,b2.json,b3.json",
            "before.json after.json --threshold 5 --format csv",
        ],
    ),
    ("sim list", ["", "--format json", "--format csv"]),
    ("sim run", ["share-error", "mine.yaml --seeds 10", "mine.yaml --seeds 100 --part 2/8 --format json"]),
    ("sim merge", ["part-*.json", "part-*.json --format csv", "part-1.json part-2.json --format json"]),
    ("sim fit", ["surface.csv", "surface.csv -o disk.yaml", "surface.csv -o -"]),
    ("sim surface", ["--disk i3.2xlarge", "--disk disk.yaml --format csv", "--disk disk.yaml --compare surface.csv"]),
    ("trace show", ["own.plt", "own.plt --class query --limit 50", "own.plt --from 1.5 --to 2s"]),
    ("trace stages", ["own.plt", "own.plt --by class,size --format csv", "nvme0n1.blktrace --page stages.html"]),
    ("trace gaps", ["own.plt", "own.plt --longer-than 100us", "own.plt --format json"]),
    ("trace little", ["own.plt", "own.plt --format csv", "own.plt --format json"]),
    ("trace diff", ["before.plt after.plt", "before.plt after.plt --format csv", "before.plt after.plt --format json"]),
    (
        "trace export",
        [
            "own.plt --to perfetto -o own.perfetto-trace",
            "own.plt --to csv --class query",
            "nvme0n1.blktrace --to arrivals -o arrivals.csv",
        ],
    ),
    (
        "trace kernel",
        [
            "/dev/nvme0n1 --duration 10s -o nvme0n1.blktrace",
            "/mnt/data --duration 5 -o mine.blktrace",
            "nvme0n1.blktrace --beside own.plt",
        ],
    ),
    (
        "run",
        [
            "--rules rocksdb --io-properties io.yaml --dir /data -- db_bench",
            "--disk disk.yaml --explain -- sqlite3 notes.db .dump",
            "--rules my-rules.yaml --trace own.plt -- ./server",
        ],
    ),
    ("attach", ["", "4711", "4711 --set query.shares=500 --once"]),
    ("stat", ["1", "100ms 50 --format csv", "--from iostat.txt --interval 5s"]),
    ("serve", ["", "--listen 127.0.0.1:9650 --interval 5s", "--group data=nvme0n1,nvme1n1"]),
    (
        "report",
        [
            "before.json after.json -o report.html",
            "tune.record -o tune.html",
            "own.plt iostat.txt -o both.html --force",
        ],
    ),
    (
        "depot",
        [
            "depot db1.plt --host db1",
            "depot db1.stat db2.stat --disk i4i.2xlarge",
            "depot before.json after.json --format json",
        ],
    ),
    ("info", ["io-properties.yaml", "--disk i4i.2xlarge", "io-properties.yaml --check"]),
    ("presets list", ["", "--format json", "--format csv"]),
    ("presets show", ["i4i.2xlarge", "4x983-dct", "gp3:500GiB:16000iops:1000MiB/s"]),
    ("presets find", ["i4i", "--read-iops 13.2M/min", "nvme --read-bandwidth 3GB/s"]),
    ("presets array", ["4x983-dct", "3xgp3:50GB:250MB/s --limit 6800Mb/s", "4x983-dct --format json"]),
    ("instance card", ["", "--storage /mnt/data -o card.json", "--format json"]),
    ("instance compare", ["a.json b.json", "i3en.24xlarge i3.metal", "a.json b.json --page compare.html"]),
    ("instance scaling", ["i3en", "sizes.csv", "i4i --format json"]),
    ("instance claims", ["", "--format csv", "--page claims.html"]),
    (
        "cache create",
        [
            "cache.yaml /dev/nvme0n1 /dev/nvme1n1",
            "cache.yaml /data/cache0 --size 100GiB",
            "cache.yaml /dev/nvme0n1 --destructive",
        ],
    ),
    (
        "cache add",
        ["cache.yaml /dev/nvme2n1", "cache.yaml /data/cache1 --size 100GiB", "cache.yaml /dev/nvme2n1 --destructive"],
    ),
    ("cache expand", ["cache.yaml /dev/nvme0n1", "cache.yaml /data/cache0", "cache.yaml /data/cache0 --size 200GiB"]),
    ("cache remove", ["cache.yaml /dev/nvme0n1", "cache.yaml /data/cache0", "./cache.yaml /data/cache1"]),
    ("cache status", ["cache.yaml", "cache.yaml --format json", "cache.yaml --format csv"]),
    ("cache iostat", ["cache.yaml", "cache.yaml 1 --devices", "cache.yaml 10s 6 --format csv"]),
    ("cache hits", ["cache.yaml", "cache.yaml --format csv", "cache.yaml --format json"]),
    ("cache slabs", ["cache.yaml", "cache.yaml --format csv", "cache.yaml --format json"]),
    ("cache check", ["cache.yaml", "cache.yaml --format json", "./cache.yaml"]),
    (
        "cache bench",
        [
            "cache.yaml",
            "cache.yaml --read-pct 90 --zipf 0.9 --duration 30s",
            "cache.yaml --fill --verify --block-size 64k",
        ],
    ),
];

/// Appends its examples to the help of each subcommand.
pub(crate) fn with_examples(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (words, examples)| {
        let words: Vec<&str> = words.split(' ').collect();
        below(command, &words, &text(&words.join(" "), examples))
    })
}

/// Appends `text` to the help of the subcommand that `words` name.
fn below(command: Command, words: &[&str], text: &str) -> Command {
    match words {
        [] => command.after_help(text.to_owned()),
        [first, rest @ ..] => command.mut_subcommand(first, |subcommand| below(subcommand, rest, text)),
    }
}

fn text(words: &str, examples: &[&str]) -> String {
    let lines: Vec<String> =
        examples.iter().map(|example| format!("  plimsoll {words} {example}").trim_end().to_owned()).collect();
    format!("Examples:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Arguments;

    #[test]
    fn every_example_is_understood_by_its_command() {
        for (words, examples) in EXAMPLES {
            for example in examples {
                let line = format!("plimsoll {words} {example}");
                assert!(line.len() <= 78, "a terminal of 80 columns would break it: {line}");
                let parsed = Arguments::command().try_get_matches_from(line.split_whitespace());
                assert!(parsed.is_ok(), "{line}: {}", parsed.map_or_else(|error| error.to_string(), |_| String::new()));
            }
        }
        let named = EXAMPLES.iter().find(|(words, _)| *words == "sim run").map(|(_, examples)| examples[0]);
        assert!(plimsoll_sim::scenario::all().iter().any(|scenario| Some(scenario.name) == named), "{named:?}");
    }

    #[test]
    fn help_fits_100_columns() {
        fn check(command: &mut Command) {
            let help = command.render_long_help().to_string();
            // A usage is one line, however long.
            let wide = help.lines().find(|line| line.chars().count() > 100 && !line.starts_with("Usage:"));
            assert_eq!(wide, None, "{}", command.get_name());
            command.get_subcommands_mut().for_each(check);
        }
        check(&mut with_examples(Arguments::command()));
    }

    #[test]
    fn every_command_has_examples() {
        fn check(command: &Command, words: &str) {
            let mut subcommands = command.get_subcommands().filter(|sub| sub.get_name() != "help").peekable();
            if subcommands.peek().is_none() {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert_eq!(help.matches("plimsoll ").count(), 3, "{words}: {help}");
            }
            for subcommand in subcommands {
                check(subcommand, &format!("{words} {}", subcommand.get_name()));
            }
        }
        check(&with_examples(Arguments::command()), "plimsoll");
    }
}
