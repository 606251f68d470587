//! The line about a run's trace at its end: its files, and missing events.

use std::io;

use super::handover::Traces;

/// Returns the line, and whether something is missing.
pub(super) fn line(path: &str, traces: &Traces) -> (String, bool) {
    let Traces { begun, beside, ended, errno, dropped_events } = *traces;
    let error = (errno != 0).then(|| io::Error::from_raw_os_error(errno));

    let files = match (begun, beside) {
        (0, _) => {
            return match error {
                Some(error) => (format!("{path} is not written: {error}"), true),
                None => (format!("{path} is not written: no call came to the gate"), false),
            };
        }
        (1, 0) => path.to_owned(),
        (1, _) => format!("{path}.PID"),
        _ => format!("{path} and {beside} file(s) {path}.PID, one for each process that had the gate"),
    };
    if let Some(error) = error {
        let what = if begun == 1 { "is incomplete" } else { "are incomplete" };
        return (format!("{files} {what}: {error}"), true);
    }

    let mut missing = Vec::new();
    if ended < begun {
        missing.push("the last ones of a process that was killed, called exec or still runs".to_owned());
    }
    if dropped_events > 0 {
        missing.push(format!("{dropped_events} events that came faster than they were written"));
    }
    match missing.is_empty() {
        true => (format!("{files}: what happened to every call at the gate, for `plimsoll trace`"), false),
        false => {
            let missing = missing.join(" and without ");
            let text =
                format!("{files}: what happened to the calls at the gate, without {missing}, for `plimsoll trace`");
            (text, true)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told() {
        let all = Traces { begun: 1, ended: 1, ..Traces::default() };
        let table = [
            (Traces::default(), "t is not written: no call came to the gate", false),
            (Traces { errno: 13, ..Traces::default() }, "t is not written: Permission denied (os error 13)", true),
            (all, "t: what happened to every call at the gate, for `plimsoll trace`", false),
            (
                Traces { beside: 1, ..all },
                "t.PID: what happened to every call at the gate, for `plimsoll trace`",
                false,
            ),
            (
                Traces { begun: 3, beside: 2, ended: 3, ..all },
                "t and 2 file(s) t.PID, one for each process that had the gate: what happened to every call at the gate, \
                 for `plimsoll trace`",
                false,
            ),
            (Traces { errno: 28, ..all }, "t is incomplete: No space left on device (os error 28)", true),
            (
                Traces { begun: 2, beside: 1, errno: 28, ..all },
                "t and 1 file(s) t.PID, one for each process that had the gate are incomplete: No space left on device \
                 (os error 28)",
                true,
            ),
            (
                Traces { ended: 0, dropped_events: 7, ..all },
                "t: what happened to the calls at the gate, without the last ones of a process that was killed, called \
                 exec or still runs and without 7 events that came faster than they were written, for `plimsoll trace`",
                true,
            ),
        ];
        for (traces, expected, is_missing) in table {
            assert_eq!(line("t", &traces), (expected.to_owned(), is_missing), "{traces:?}");
        }
    }
}
