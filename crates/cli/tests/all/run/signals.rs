//! Signals to the command: each reaches the program once.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use super::{PLIMSOLL, World, ended, has};
use crate::terminal::has_terminals;

/// Says that it is ready, waits for a signal, and says how many have come half a second later.
const COUNT: &str = "import os,signal,sys,time\nr,w=os.pipe()\nos.set_blocking(w,False)\n\
                     signal.set_wakeup_fd(w,warn_on_full_buffer=False)\n\
                     for s in (signal.SIGINT,signal.SIGQUIT,signal.SIGTERM,signal.SIGHUP,signal.SIGUSR1,signal.SIGUSR2): signal.signal(s,lambda *a: None)\n\
                     print('ready',flush=True)\nsignal.alarm(20)\nfirst=os.read(r,1)\ntime.sleep(0.5)\nos.set_blocking(r,False)\n\
                     try: first+=os.read(r,9)\nexcept BlockingIOError: pass\n\
                     print('came',*first,'end',flush=True)\nsys.exit(3)";

#[test]
fn a_signal_to_the_command_alone_reaches_the_program() {
    let world = World::new();
    if !has("python3") {
        return;
    }
    for signal in [Signal::INT, Signal::QUIT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2] {
        let mut command = world.command(PLIMSOLL, &["run", "--", "python3", "-c", COUNT]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert_eq!(said.next().as_deref(), Some("ready"), "{signal:?}");
        kill_process(Pid::from_child(&child), signal).unwrap();
        assert_eq!(said.next(), Some(format!("came {} end", signal.as_raw())), "{signal:?}");
        assert_eq!(child.wait().unwrap().code(), Some(3), "{signal:?}");
    }
}

/// Starts a program on a terminal of its own, and presses a key once it is ready.
const PRESS: &str = "import os,pty,sys\npid,fd=pty.fork()\nif pid==0: os.execv(sys.argv[2],sys.argv[2:])\n\
                     seen=b''\ndef until(word):\n global seen\n while word not in seen: seen+=os.read(fd,4096)\n\
                     until(b'ready')\nos.write(fd,bytes([int(sys.argv[1])]))\nuntil(b' end')\n\
                     print(seen[seen.index(b'came'):seen.index(b' end')].decode())";

#[test]
fn a_key_of_the_terminal_reaches_the_program_once() {
    let world = World::new();
    if !has("python3") || !has_terminals() {
        return;
    }
    // Ctrl-C and Ctrl-\.
    for (key, signal) in [("3", Signal::INT), ("28", Signal::QUIT)] {
        let arguments = ["-c", PRESS, key, PLIMSOLL, "run", "--", "python3", "-c", COUNT];
        let output = ended(world.command("python3", &arguments));
        let came = output.out;
        assert_eq!(came, format!("came {}\n", signal.as_raw()), "{}", output.err);
    }
}

/// The command's handlers were not in place yet in one run of seven, and the signal ended the command alone.
#[test]
fn a_signal_that_comes_as_soon_as_the_program_runs_reaches_it() {
    let world = World::new();
    let script = "trap 'kill $!; exit 5' TERM; sleep 60 >&- 2>&- & kill -TERM $PPID; wait";
    for _ in 0..20 {
        let output = world.run(&[], &["sh", "-c", script]);
        assert_eq!(output.code, Some(5), "{output:#?}");
    }
}

#[test]
fn signals_that_the_command_ignores_are_ignored_by_the_program() {
    let world = World::new();
    let read = "while read -r key mask; do test $key != SigIgn: || echo $mask; done </proc/$$/status";
    let masks = [&[][..], &[PLIMSOLL, "run", "--"]].map(|run: &[&str]| {
        let ignore = "trap '' HUP INT USR1; exec \"$@\"";
        let arguments = [&["-c", ignore, "sh"], run, &["sh", "-c", read]].concat();
        ended(world.command("sh", &arguments)).done().out
    });
    assert_eq!(masks[0], masks[1]);
}
