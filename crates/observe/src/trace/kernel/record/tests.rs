use super::super::read_blktrace;
use super::*;
use crate::trace::span::Item;

/// A fake of the kernel's places, for the device of the file system that it is on.
struct Fake {
    dir: tempfile::TempDir,
    place: Place,
    switch: PathBuf,
}

const SETTINGS: [(&str, &str); 11] = [
    ("current_tracer", "nop"),
    ("available_tracers", "blk function nop"),
    ("set_event", ""),
    ("trace_clock", "[local] global mono boot"),
    ("buffer_size_kb", "7 (expanded: 1408)"),
    ("tracing_on", "1"),
    ("options/bin", "0"),
    ("options/context-info", "1"),
    ("options/blk_classic", "0"),
    ("per_cpu/cpu0/stats", "entries: 5\noverrun: 0\n"),
    ("per_cpu/cpu0/trace_pipe", ""),
];

impl Fake {
    fn new() -> Fake {
        let dir = tempfile::tempdir().unwrap();
        let number = fs::metadata(dir.path()).unwrap().dev();
        let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        let directory = dir.path().join("sys/devices/vdx");
        let place = Place { tracefs: dir.path().join("t"), sys: dir.path().join("sys"), proc: dir.path().join("proc") };

        fs::create_dir_all(directory.join("trace")).unwrap();
        fs::create_dir_all(place.sys.join("dev/block")).unwrap();
        std::os::unix::fs::symlink(&directory, place.sys.join("dev/block").join(number)).unwrap();

        let switch = directory.join("trace/enable");
        fs::write(&switch, "0\n").unwrap();
        fs::create_dir_all(place.proc.join("7")).unwrap();
        fs::write(place.proc.join("7/comm"), "fio\n").unwrap();

        for (name, value) in SETTINGS {
            let path = place.tracefs.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
        }
        Fake { dir, place, switch }
    }

    fn set(&self, name: &str, value: impl AsRef<[u8]>) {
        fs::write(self.place.tracefs.join(name), value).unwrap();
    }

    fn get(&self, name: &str) -> String {
        fs::read_to_string(self.place.tracefs.join(name)).unwrap()
    }

    /// Everything that [`record`] may change.
    fn state(&self) -> Vec<String> {
        let names = ["current_tracer", "trace_clock", "buffer_size_kb", "options/bin", "options/context-info"];
        let mut state: Vec<String> = names.iter().map(|name| self.get(name)).collect();
        state.push(fs::read_to_string(&self.switch).unwrap().trim().to_owned());
        state
    }

    fn record(&self, out: &mut dyn Write, during: &mut dyn FnMut()) -> Result<Recorded, RecordError> {
        let mut looks = 0;
        record(self.dir.path(), &self.place, out, &mut || {
            looks += 1;
            during();
            looks < 3
        })
    }
}

#[test]
fn it_sets_up_records_and_puts_everything_back() {
    let fake = Fake::new();
    let mut bytes = Vec::new();
    let head = |time_ns, action| {
        Head { time_ns, action, sector: 8, bytes: 4096, process: 7, device: 5, ..Head::default() }.to_bytes()
    };

    bytes.extend(head(100, 1));
    bytes.extend(b"CPU:0 [LOST 12 EVENTS]\n");
    bytes.extend(head(200, 7));
    bytes.extend(head(300, 8));
    fake.set("per_cpu/cpu0/trace_pipe", bytes);

    let (mut out, mut seen) = (Vec::new(), Vec::new());
    let recorded = fake
        .record(&mut out, &mut || {
            seen = fake.state();
            fake.set("per_cpu/cpu0/stats", "overrun: 10\ndropped events: 2\n");
        })
        .unwrap();
    assert_eq!(seen, ["blk", "mono", "4096", "1", "0", "1"]);

    // The clock is restored by its name; a buffer that was not made yet gets the size it would have had.
    assert_eq!(fake.state(), ["nop", "local", "1408", "0", "1", "0"]);
    let expected = Recorded { disk: "vdx".to_owned(), events: 3, lost_events: 12, is_monotonic: true };
    assert_eq!(recorded, expected);

    let mut spans = Vec::new();
    let trace = read_blktrace(&mut out.as_slice(), &mut |item| spans.push(item)).unwrap();
    assert!(matches!(spans[..], [Item::Span(span)] if span.submitted_ns == Some(200)), "{spans:?}");
    assert_eq!(trace.names.classes[&0].name, "fio");
    assert!(trace.is_monotonic && trace.unix_at_zero_ns.is_some());
    assert_eq!(trace.lost, ["12 events did not fit into the kernel's buffer while recording"]);
}

#[test]
fn it_refuses_where_somebody_else_is_and_changes_nothing() {
    let cases = [
        ("current_tracer", "function", "the tracer `function` is in use"),
        ("available_tracers", "function nop", "no block tracer"),
        ("set_event", "sched:sched_switch\n", "sched:sched_switch is enabled"),
    ];
    for (name, value, message) in cases {
        let fake = Fake::new();
        fake.set(name, value);
        let before = fake.state();
        let error = fake.record(&mut Vec::new(), &mut || {}).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
        assert_eq!(fake.state(), before);
    }

    let fake = Fake::new();
    fs::write(&fake.switch, "1").unwrap();
    assert!(matches!(fake.record(&mut Vec::new(), &mut || {}), Err(RecordError::DeviceBusy(..))));
    fs::remove_file(&fake.switch).unwrap();
    assert!(matches!(fake.record(&mut Vec::new(), &mut || {}), Err(RecordError::NoTracer(_))));

    let error = record(Path::new("/nonexistent"), &fake.place, &mut Vec::new(), &mut || false).unwrap_err();
    assert!(error.to_string().contains("expected a block device"), "{error}");
}

#[test]
fn after_an_error_everything_is_put_back_too() {
    /// A disk that is full after the first record.
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for room_bytes in [0, 300] {
        let fake = Fake::new();
        fake.set("per_cpu/cpu0/trace_pipe", [Head::default().to_bytes(); 20].concat());
        let error = fake.record(&mut Full(room_bytes), &mut || {}).unwrap_err();
        assert!(matches!(error, RecordError::Write(_)), "{error}");
        assert_eq!(fake.state(), ["nop", "local", "1408", "0", "1", "0"]);
    }

    // If an option cannot be set, the options set before it are restored.
    let fake = Fake::new();
    fs::remove_file(fake.place.tracefs.join("tracing_on")).unwrap();
    assert!(matches!(fake.record(&mut Vec::new(), &mut || {}), Err(RecordError::Kernel(..))));
    assert_eq!(fake.state(), ["nop", "local", "1408", "0", "1", "0"]);
}

#[test]
fn sizes_of_buffers_are_read_as_the_kernel_writes_them() {
    for (text, kib) in [("1408", Some(1408)), ("7 (expanded: 1408)", Some(1408)), ("X", None), ("", None)] {
        assert_eq!(buffer_kib(text), kib, "{text}");
    }
}
