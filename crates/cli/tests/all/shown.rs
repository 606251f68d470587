//! README.md and the pages of docs/guide: their commands run from a fresh clone, and what stands below a command is what it prints.
//!
//! Blocks in `sh` are run by bash as they stand, in a directory that has `docs/` as a clone has it, with what [`SHORTER`]
//! says made short. `cargo` is a function: `cargo run -- X` asks whether the arguments X are understood, building and
//! testing do nothing. Outputs (`<!-- output of: COMMAND -->`) are compared by their shape: figures with their units may
//! differ, words and columns may not; `docs/refresh` writes them anew. The demo itself runs once, on the disk of the build.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::skip::skip;
use crate::world::{Ended, PLIMSOLL, World};

/// What is shown, and what is run for it: the same commands on less data, for a shorter time.
const SHORTER: [(&str, &str); 11] = [
    (" --quick -o", " --quick --phase 20ms --data-size 16M -c 1 -o"),
    ("card --quick", "card --quick --skip disk,submission,stress-ng,network"),
    ("  shards: all\n", "  shards: all\n  data_size: 8MB\n"),
    ("--duration 10", "--duration 300ms"),
    ("--duration 5", "--duration 300ms"),
    ("runtime=5s", "runtime=300ms"),
    ("size=256m", "size=16m"),
    ("stat 1 5", "stat 1 2"),
    ("--size 2GiB", "--size 320MiB"),
    ("--keys 200000", "--keys 2000"),
    ("duration: 2s\n", "duration: 1600ms\n"),
];

/// Before each block: any exit code above 1 (a finding) ends it.
const PROLOGUE: &str = r#"
trap 'code=$?; if [ $code -gt 1 ]; then echo "exit code $code: $BASH_COMMAND" >&2; exit $code; fi' ERR
cargo() {
  if [ "$1" = run ]; then
    while [ "$1" != -- ]; do shift; done
    shift
    plimsoll "$@" --help
  fi
}
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(page: &str) -> String {
    std::fs::read_to_string(root().join(page)).expect("the page is there")
}

/// A directory as a fresh clone is, as far as the pages use it.
fn clone() -> World {
    let world = World::new(&[]);
    std::fs::create_dir_all(world.path().join("docs/examples")).expect("a directory can be made");
    for directory in ["docs", "docs/examples"] {
        for entry in std::fs::read_dir(root().join(directory)).expect("the directory is there") {
            let path = entry.expect("an entry").path();
            if path.is_file() {
                let name = path.file_name().expect("a file has a name");
                std::fs::copy(&path, world.path().join(directory).join(name)).expect("a file can be copied");
            }
        }
    }
    world
}

fn bash(world: &World, script: &str) -> Ended {
    let binaries = Path::new(PLIMSOLL).parent().expect("the binary lies in a directory");
    let path = std::env::join_paths(
        std::iter::once(binaries.to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let mut command = Command::new("bash");
    command.args(["-c", script]).current_dir(world.path()).stdin(Stdio::null());
    Ended::of(command.env("PATH", path.expect("a path")).output().expect("bash starts"))
}

/// The pages of the guide, in the order in which it lists them.
fn guide() -> Vec<String> {
    let list = read("docs/guide/README.md");
    let names = list.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(".md)"));
    names.map(|name| format!("docs/guide/{name}.md")).collect()
}

/// Runs all `sh` blocks of a page: how many commands they have. `None` where the machine cannot.
fn follow(world: &World, page: &str) -> Option<usize> {
    let text = read(page);
    let mut commands = 0;
    for block in text.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```")).map(|(block, _)| block) {
        let short = SHORTER.iter().fold(block.to_owned(), |block, (shown, run)| block.replace(shown, run));
        let ended = bash(world, &format!("{PROLOGUE}{short}"));
        if ended.code == Some(3) {
            skip(format_args!("{page}: this machine cannot: {}", ended.err.trim()));
            return None;
        }
        assert!(matches!(ended.code, Some(0 | 1)), "{page}: {short}\n{ended:#?}");
        commands += block.lines().filter(|line| line.starts_with("plimsoll") || line.starts_with("cargo")).count();
    }
    Some(commands)
}

#[test]
fn every_command_of_the_readme_runs_from_a_fresh_clone() {
    assert!(follow(&clone(), "README.md").is_none_or(|commands| commands >= 6));
}

#[test]
fn every_command_of_the_guide_runs_from_a_fresh_clone() {
    let world = clone();
    let commands: Option<usize> = guide().iter().map(|page| follow(&world, page)).sum();
    assert!(commands.is_none_or(|commands| commands >= 35), "{commands:?}");
}

/// What is in docs/ and nowhere in the book is read by nobody; the book has the guide in the guide's own order.
#[test]
fn the_book_has_every_page() {
    let summary = read("docs/SUMMARY.md");
    let listed: Vec<String> = summary
        .lines()
        .filter_map(|line| Some(format!("docs/{}", line.split_once("](")?.1.strip_suffix(")")?)))
        .collect();
    let guide = guide();
    assert!(listed.iter().filter(|page| guide.contains(page)).eq(&guide), "{listed:?}");
    for directory in ["docs", "docs/guide"] {
        for entry in std::fs::read_dir(root().join(directory)).expect("docs/ is there") {
            let name = entry.expect("it can be read").file_name().into_string().expect("a name in ASCII");
            let page = format!("{directory}/{name}");
            assert!(
                !name.ends_with(".md") || name == "SUMMARY.md" || listed.contains(&page),
                "{page} is not in the book"
            );
        }
    }
}

/// Markers of a page: what they say, and the block below those that show an output.
fn markers(text: &str) -> Vec<(&str, &str, Option<&str>)> {
    let each = text.split("<!-- ").skip(1).filter_map(|rest| {
        let (marker, below) = rest.split_once(" -->\n")?;
        let (what, command) = marker.split_once(": ")?;
        let block = (what == "output of").then(|| below.split_once("```text\n")?.1.split_once("```")).flatten();
        Some((what, command, block.map(|(block, _)| block)))
    });
    each.filter(|(what, ..)| ["output of", "run"].contains(what)).collect()
}

/// A text without its figures and their units, on one line.
fn shape(text: &str) -> String {
    const UNITS: [&str; 20] = [
        "us",
        "ms",
        "ns",
        "s",
        "%",
        "B/s",
        "kB/s",
        "MB/s",
        "GB/s",
        "B",
        "KiB",
        "MiB",
        "GiB",
        "TiB",
        "IOPS",
        "/s",
        "bytes",
        "x",
        "±",
        "operations/s",
    ];
    let is_figure = |word: &str| {
        word.trim_matches(['(', ')', ',', '.', ';', ':', '+', '-']).starts_with(|c: char| c.is_ascii_digit())
    };
    let mut words: Vec<&str> = Vec::new();
    for word in text.split_whitespace() {
        let is_unit = UNITS.contains(&word.trim_matches(['(', ')', ',', '.', ';', ':']));
        if is_figure(word) {
            words.push("#");
        } else if !(is_unit && words.last() == Some(&"#")) {
            words.push(word);
        }
    }
    words.dedup_by(|next, last| *next == "#" && *last == "#");
    words.join(" ")
}

#[test]
fn what_is_shown_has_the_shape_of_what_is_printed() {
    let mut shown = 0;
    for page in std::iter::once("README.md".to_owned()).chain(guide()) {
        let (text, world) = (read(&page), clone());
        for (what, command, block) in markers(&text) {
            // It has a test of its own, below.
            if command.starts_with("plimsoll demo") {
                continue;
            }
            let ended = bash(&world, command);
            assert!(matches!(ended.code, Some(0 | 1)), "{page}: {command}\n{ended:#?}");
            if what == "output of" {
                let block = block.expect("a block stands below the marker");
                assert_eq!(shape(block), shape(&ended.out), "{page}: {command}: run docs/refresh");
                shown += 1;
            }
        }
    }
    assert!(shown >= 3, "{shown}");
}

/// The demo's table: its header, and of each row the situation and the class.
fn table(text: &str) -> (Vec<&str>, Vec<Vec<&str>>) {
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with("class  shares"));
    let header =
        lines.next().expect("the table has a header").split("  ").map(str::trim).filter(|cell| !cell.is_empty());
    let rows = lines.take_while(|line| !line.is_empty()).map(|line| {
        line.split_whitespace().take_while(|word| !word.starts_with(|c: char| c.is_ascii_digit())).collect()
    });
    (header.collect(), rows.collect())
}

#[test]
fn the_demo_on_this_disk_moves_bytes_of_every_class_or_says_which_not() {
    let world = World::new(&[]);
    let ended = world.run(&["demo"]);
    if ended.code == Some(3) {
        skip(format_args!("no demo on this disk: {}", ended.err.trim()));
        return;
    }
    let silent = ended.out.lines().filter(|line| line.contains(" moved nothing while ")).count();
    assert_eq!(ended.code, Some(i32::from(silent > 0)), "{ended:#?}");
    assert!(world.contents().is_empty(), "nothing is left behind");
    assert_eq!(ended.err, "", "nothing is said before the result");
    assert!(ended.out.starts_with("Beside background work a query takes "), "{ended:#?}");
    assert_eq!(ended.out.lines().find(|line| line.chars().count() > 100), None);
    let without = ended.out.lines().filter(|line| line.contains("   0 B/s") || line.contains("   0/s")).count();
    assert_eq!(without, silent, "{ended:#?}");
    let page = read("README.md");
    let shown = markers(&page).into_iter().find(|(_, command, _)| command.starts_with("plimsoll demo"));
    let block = shown.and_then(|(_, _, block)| block).expect("README.md shows the demo");
    assert_eq!(table(block), table(&ended.out), "run docs/refresh demo");
}
