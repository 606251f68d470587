//! The options of fio, and the treatment of each.
//!
//! **Why.** A load must not run as something else than its file says. So every option is named here: it is read, or it
//! changes nothing that is measured, or the file is refused.
//!
//! **How.** One table, ordered by treatment ([`Use`]). [`super::job`] has the readers of the options that are read.
//!
//! **Limits.** The options of fio 3.33 (its manual, "Job file parameters") that are in use with disks. Options of
//! engines for networks and clusters are unknown here.
//!
//! **Example.** `find("blocksize")` and `find("bs")` are the same option, called `bs`.

/// The treatment of an option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// The option is part of the load.
    Read,
    /// The option changes nothing that is measured.
    Silent,
    /// The option has no effect here; the file's author gets this reason.
    Note(&'static str),
    /// These values describe what happens anyway; others are refused, with this advice.
    Only(&'static [&'static str], &'static str),
    /// The option is refused, with this advice.
    Refused(&'static str),
}

/// Returns the names and the treatment of all options; fio's first name of an option comes first.
fn all() -> impl Iterator<Item = (std::str::Split<'static, char>, &'static Use)> {
    let options = |(treatment, names): &'static (Use, &'static str)| {
        names.split_whitespace().map(move |names| (names.split('|'), treatment))
    };
    TABLE.iter().flat_map(options)
}

/// Returns fio's first name of the option called `name`, and its treatment.
pub(super) fn find(name: &str) -> Option<(&'static str, &'static Use)> {
    let (mut names, treatment) = all().find(|(names, _)| names.clone().any(|other| other == name))?;
    Some((names.next()?, treatment))
}

/// Returns all names of all options.
pub(super) fn all_names() -> impl Iterator<Item = &'static str> {
    all().flat_map(|(names, _)| names)
}

const REMOVE: &str = "remove it, if the load may run without it";
const ZONES: &str = "zoned devices are not supported: remove it, or run the file with fio";
const TRIMS: &str = "remove it; a job of its own with `rw=trim` sends trims";
const DEDUPE: &str = "remove it; contents are all different";
const LAYOUT: &str = "files are written in full before the run";
const SINGLE_FILE: &str = "a job has one file on each shard: remove it, or write one job for each file";

/// The treatments, each with its options; other names of an option follow a `|`.
const TABLE: &[(Use, &str)] = &[
    // Options of the load.
    (
        Use::Read,
        "blockalign|ba bs|blocksize bssplit buffer_compress_percentage direct directory fdatasync filename fsync \
         group_reporting io_size|io_limit iodepth ioengine kb_base latency_percentile latency_target latency_window \
         loops name new_group norandommap number_ios numjobs offset offset_increment ramp_time randseed \
         random_distribution rate rate_iops rate_process runtime|timeout rw|readwrite rwmixread rwmixwrite size \
         startdelay|start_delay steadystate|ss steadystate_duration|ss_dur steadystate_ramp_time|ss_ramp \
         steadystate_check_interval|ss_interval stonewall|wait_for_previous sync thinktime thinktime_blocks \
         thinktime_iotime time_based verify wait_for zero_buffers",
    ),
    // Options that change nothing.
    (
        Use::Silent,
        "allow_mounted_write allrandrepeat|randrepeat bwavgtime clat_percentiles clocksource create_fsync \
         create_serialize description disk_util fadvise_hint invalidate iopsavgtime lat_percentiles openfiles \
         overwrite percentile_list random_generator refill_buffers scramble_buffers significant_figures \
         slat_percentiles softrandommap thread unique_filename unit_base unlink",
    ),
    // Options whose other values would make another load.
    (Use::Only(&["1"], LAYOUT), "allow_file_create"),
    (
        Use::Only(&["0"], REMOVE),
        "atomic serialize_overlap create_only experimental_verify fill_device|fill_fs nowait rate_ignore_thinktime \
         unlink_each_loop verify_only",
    ),
    (Use::Only(&["0"], "this program does direct I/O only: remove it, or set it to 0"), "buffered"),
    (Use::Only(&["1"], SINGLE_FILE), "nrfiles"),
    (Use::Only(&["1"], "remove it: every job is part of the result"), "stats"),
    (Use::Only(&["complete"], REMOVE), "thinktime_blocks_type"),
    (Use::Only(&["0", "none"], "remove it: reads and writes are reported by themselves"), "unified_rw_reporting"),
    (Use::Only(&["0"], "write one job for each block size"), "bs_is_seq_rand"),
    (Use::Only(&["0"], DEDUPE), "dedupe_percentage"),
    (Use::Only(&["0"], "appending jobs are written in a job file of this program: type `append`"), "file_append"),
    (Use::Only(&["none"], REMOVE), "lockfile write_hint"),
    (Use::Only(&["100"], "write one job for the random and one for the sequential part"), "percentage_random"),
    (Use::Only(&["0"], "direct I/O does not use the page cache: remove it"), "pre_read"),
    (Use::Only(&["0"], "remove it; a `cpu` job in a job file of this program burns time"), "thinktime_spin"),
    (Use::Only(&["0"], TRIMS), "trim_percentage"),
    (Use::Only(&["0"], "only what the same run has written is checked"), "verify_state_load"),
    (Use::Only(&["none"], ZONES), "zonemode"),
    // Options without effect.
    (Use::Note("every block is made compressible by itself"), "buffer_compress_chunk"),
    (Use::Note(LAYOUT), "create_on_open fallocate"),
    (
        Use::Note("everything is measured anyway"),
        "disable_bw_measurement|disable_bw disable_clat disable_lat disable_slat gtod_cpu gtod_reduce",
    ),
    (
        Use::Note("blocks carry this program's own stamps, and each is checked when it is read"),
        "do_verify verify_async verify_async_cpus verify_backlog verify_backlog_batch verify_dump verify_fatal \
         verify_interval verify_offset verify_pattern verify_state_save",
    ),
    (Use::Note("the time that it takes would not be part of the result"), "end_fsync fsync_on_close"),
    (Use::Note("every job ends by itself; use `time_based`, so that all end together"), "exitall"),
    (
        Use::Note("a job goes on after an error, and errors are counted and reported"),
        "exitall_on_error continue_on_error error_dump ignore_error",
    ),
    (
        Use::Note("every shard is a thread on a processor of its own"),
        "cpumask cpus_allowed cpus_allowed_policy numa_cpu_nodes numa_mem_policy",
    ),
    (
        Use::Note("the backend decides how it talks to the kernel"),
        "fixedbufs force_async hipri nonvectored registerfiles sqthread_poll sqthread_poll_cpu userspace_reap",
    ),
    (Use::Note("buffers are aligned, and of ordinary pages"), "hugepage-size iomem|mem iomem_align|mem_align"),
    (Use::Note("requests are sent when they are due, by the thread of their shard"), "io_submit_mode"),
    (
        Use::Note("requests are sent as the scheduler lets them go"),
        "iodepth_batch_complete_max iodepth_batch_complete_min|iodepth_batch_complete \
         iodepth_batch_submit|iodepth_batch",
    ),
    (Use::Note("the search ends at the highest rate that meets the target"), "latency_run"),
    (
        Use::Note("write results over time with --format json instead"),
        "log_avg_msec log_compression log_entries log_hist_coarseness log_hist_msec log_max_value log_offset \
         log_store_compressed log_unix_epoch per_job_logs write_bw_log write_hist_log write_iops_log write_lat_log",
    ),
    // Options that would make another load.
    (Use::Refused("write the lengths and their shares as `bssplit` instead"), "blocksize_range|bsrange"),
    (Use::Refused("direct I/O works in whole sectors: remove it"), "blocksize_unaligned|bs_unaligned"),
    (Use::Refused("remove it; `buffer_compress_percentage` sets how compressible blocks are"), "buffer_pattern"),
    (
        Use::Refused("remove it; give jobs different shares in a job file of this program instead"),
        "cgroup cgroup_nodelete cgroup_weight cmdprio cmdprio_bssplit cmdprio_class cmdprio_percentage prio \
         prioclass",
    ),
    (Use::Refused("jobs of CPU work are written in a job file of this program: type `cpu`"), "cpuchunks cpuload"),
    (Use::Refused(DEDUPE), "dedupe_mode dedupe_working_set_percentage"),
    (Use::Refused("run the command yourself, after the test"), "exec_postrun"),
    (Use::Refused("run the command yourself, before the test"), "exec_prerun"),
    (Use::Refused(REMOVE), "exit_what lockmem write_barrier"),
    (Use::Refused(SINGLE_FILE), "file_service_type opendir"),
    (Use::Refused("remove it; with `directory` each clone has a file of its own"), "filename_format"),
    (Use::Refused("write `size` for the length of the file, and `io_size` for how much is done"), "filesize"),
    (
        Use::Refused("jobs that pace each other are not supported: remove it, or give each job a `rate_iops`"),
        "flow flow_id flow_sleep flow_watermark",
    ),
    (Use::Refused("run the program as that group"), "gid"),
    (Use::Refused("remove it: the queue is filled up as soon as a request is done"), "iodepth_low"),
    (Use::Refused("set it in /sys/block/DEVICE/queue/scheduler before the run"), "ioscheduler"),
    (
        Use::Refused(ZONES),
        "job_max_open_zones max_open_zones read_beyond_wp zone_reset_frequency zone_reset_threshold zonecapacity \
         zonerange zonesize zoneskip",
    ),
    (Use::Refused("remove it, and look at the longest latency of the result"), "max_latency"),
    (
        Use::Refused("traces are not replayed: remove it, and describe the load"),
        "merge_blktrace_file read_iolog read_iolog_chunked replay_align replay_no_stall replay_redirect replay_scale \
         replay_skip replay_time_scale write_iolog",
    ),
    (Use::Refused("run the program with `nice`"), "nice"),
    (Use::Refused("write an `offset` in bytes"), "offset_align"),
    (Use::Refused("write the load as jobs"), "profile"),
    (
        Use::Refused("remove it, and look at the result: it names the rate that was reached"),
        "rate_cycle rate_iops_min rate_min",
    ),
    (Use::Refused("remove it: `rw` is read without a `:N` behind it"), "rw_sequencer"),
    (Use::Refused("direct I/O leaves nothing in the page cache: remove it"), "sync_file_range"),
    (Use::Refused(TRIMS), "trim_backlog trim_backlog_batch trim_verify_zero"),
    (Use::Refused("run the program as that user"), "uid"),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn no_option_stands_twice_in_the_table() {
        let mut seen = HashSet::new();
        assert!(super::all_names().all(|name| seen.insert(name)), "{seen:?}");
        assert_eq!(super::find("blocksize").map(|(name, _)| name), Some("bs"));
        assert!(super::find("bs|blocksize").is_none() && super::find("").is_none());
    }
}
