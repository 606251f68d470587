//! Which options fio has, and what is made of each.
//!
//! **Why.** A load must not run as something else than its file says. So every option is named here: it is read, or it
//! changes nothing that is measured, or the file is refused.
//!
//! **How.** One table, by name. [`Use`] says what becomes of an option; the readers of those that are read are in
//! [`super::job`].
//!
//! **Limits.** The options of fio 3.33 (its manual, "Job file parameters") that are in use with disks. Options of
//! engines for networks and clusters are unknown here.
//!
//! **Example.** `find("blocksize")` and `find("bs")` are the same option, called `bs`.

/// What becomes of an option.
#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// It is part of the load.
    Read,
    /// It changes nothing that can be noticed.
    Silent,
    /// It has no effect here, and whoever wrote it should know why.
    Note(&'static str),
    /// These values are what is done anyway; others are refused, with this advice.
    Only(&'static [&'static str], &'static str),
    /// It is refused, with this advice.
    Refused(&'static str),
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    names: &'static [&'static str],
    /// What becomes of it.
    pub(super) treatment: Use,
}

impl Known {
    /// fio's first name of it.
    pub(super) fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or("")
    }
}

/// The option that is called `name`.
pub(super) fn find(name: &str) -> Option<&'static Known> {
    TABLE.iter().find(|option| option.names.contains(&name))
}

/// All names of all options.
pub(super) fn all_names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|option| option.names.iter().copied())
}

const fn known(names: &'static [&'static str], treatment: Use) -> Known {
    Known { names, treatment }
}

const REMOVE: &str = "remove it, if the load may run without it";
const ZONES: &str = "zoned devices are not supported: remove it, or run the file with fio";
const FLOW: &str = "jobs that pace each other are not supported: remove it, or give each job a `rate_iops`";
const PRIORITY: &str = "remove it; give jobs different shares in a job file of this program instead";
const REPLAY: &str = "traces are not replayed: remove it, and describe the load";
const TRIMS: &str = "remove it; a job of its own with `rw=trim` sends trims";
const DEDUPE: &str = "remove it; contents are all different";
const RATE_MINIMUM: &str = "remove it, and look at the result: it names the rate that was reached";
const LOG: &str = "write results over time with --format json instead";
const BATCH: &str = "requests are sent as the scheduler lets them go";
const ENGINE: &str = "the backend decides how it talks to the kernel";
const PLACE: &str = "every shard is a thread on a processor of its own";
const STAMPS: &str = "blocks carry this program's own stamps, and each is checked when it is read";
const LAYOUT: &str = "files are written in full before the run";
const ERRORS: &str = "a job goes on after an error, and errors are counted and reported";
const SINGLE_FILE: &str = "a job has one file on each shard: remove it, or write one job for each file";

const TABLE: &[Known] = &[
    // The load.
    known(&["blockalign", "ba"], Use::Read),
    known(&["bs", "blocksize"], Use::Read),
    known(&["bssplit"], Use::Read),
    known(&["buffer_compress_percentage"], Use::Read),
    known(&["direct"], Use::Read),
    known(&["directory"], Use::Read),
    known(&["fdatasync"], Use::Read),
    known(&["filename"], Use::Read),
    known(&["fsync"], Use::Read),
    known(&["group_reporting"], Use::Read),
    known(&["io_size", "io_limit"], Use::Read),
    known(&["iodepth"], Use::Read),
    known(&["ioengine"], Use::Read),
    known(&["kb_base"], Use::Read),
    known(&["latency_percentile"], Use::Read),
    known(&["latency_target"], Use::Read),
    known(&["latency_window"], Use::Read),
    known(&["loops"], Use::Read),
    known(&["name"], Use::Read),
    known(&["new_group"], Use::Read),
    known(&["norandommap"], Use::Read),
    known(&["number_ios"], Use::Read),
    known(&["numjobs"], Use::Read),
    known(&["offset"], Use::Read),
    known(&["offset_increment"], Use::Read),
    known(&["ramp_time"], Use::Read),
    known(&["randseed"], Use::Read),
    known(&["random_distribution"], Use::Read),
    known(&["rate"], Use::Read),
    known(&["rate_iops"], Use::Read),
    known(&["rate_process"], Use::Read),
    known(&["runtime", "timeout"], Use::Read),
    known(&["rw", "readwrite"], Use::Read),
    known(&["rwmixread"], Use::Read),
    known(&["rwmixwrite"], Use::Read),
    known(&["size"], Use::Read),
    known(&["startdelay", "start_delay"], Use::Read),
    known(&["steadystate", "ss"], Use::Read),
    known(&["steadystate_duration", "ss_dur"], Use::Read),
    known(&["steadystate_ramp_time", "ss_ramp"], Use::Read),
    known(&["steadystate_check_interval", "ss_interval"], Use::Read),
    known(&["stonewall", "wait_for_previous"], Use::Read),
    known(&["sync"], Use::Read),
    known(&["thinktime"], Use::Read),
    known(&["thinktime_blocks"], Use::Read),
    known(&["thinktime_iotime"], Use::Read),
    known(&["time_based"], Use::Read),
    known(&["verify"], Use::Read),
    known(&["wait_for"], Use::Read),
    known(&["zero_buffers"], Use::Read),
    // What is done anyway, or changes nothing.
    known(&["allow_file_create"], Use::Only(&["1"], LAYOUT)),
    known(&["allow_mounted_write"], Use::Silent),
    known(&["allrandrepeat", "randrepeat"], Use::Silent),
    known(&["atomic"], Use::Only(&["0"], REMOVE)),
    known(&["buffered"], Use::Only(&["0"], "this program does direct I/O only: remove it, or set it to 0")),
    known(&["buffer_compress_chunk"], Use::Note("every block is made compressible by itself")),
    known(&["bwavgtime"], Use::Silent),
    known(&["clat_percentiles"], Use::Silent),
    known(&["clocksource"], Use::Silent),
    known(&["create_fsync"], Use::Silent),
    known(&["create_on_open"], Use::Note(LAYOUT)),
    known(&["create_serialize"], Use::Silent),
    known(&["description"], Use::Silent),
    known(&["disable_bw_measurement", "disable_bw"], Use::Note("everything is measured anyway")),
    known(&["disable_clat"], Use::Note("everything is measured anyway")),
    known(&["disable_lat"], Use::Note("everything is measured anyway")),
    known(&["disable_slat"], Use::Note("everything is measured anyway")),
    known(&["disk_util"], Use::Silent),
    known(&["do_verify"], Use::Note(STAMPS)),
    known(&["end_fsync"], Use::Note("the time that it takes would not be part of the result")),
    known(&["exitall"], Use::Note("every job ends by itself; use `time_based`, so that all end together")),
    known(&["exitall_on_error"], Use::Note(ERRORS)),
    known(&["fadvise_hint"], Use::Silent),
    known(&["fallocate"], Use::Note(LAYOUT)),
    known(&["fsync_on_close"], Use::Note("the time that it takes would not be part of the result")),
    known(&["gtod_cpu"], Use::Note("everything is measured anyway")),
    known(&["gtod_reduce"], Use::Note("everything is measured anyway")),
    known(&["invalidate"], Use::Silent),
    known(&["iopsavgtime"], Use::Silent),
    known(&["lat_percentiles"], Use::Silent),
    known(&["nrfiles"], Use::Only(&["1"], SINGLE_FILE)),
    known(&["openfiles"], Use::Silent),
    known(&["overwrite"], Use::Silent),
    known(&["percentile_list"], Use::Silent),
    known(&["random_generator"], Use::Silent),
    known(&["refill_buffers"], Use::Silent),
    known(&["scramble_buffers"], Use::Silent),
    known(&["serialize_overlap"], Use::Only(&["0"], REMOVE)),
    known(&["significant_figures"], Use::Silent),
    known(&["slat_percentiles"], Use::Silent),
    known(&["softrandommap"], Use::Silent),
    known(&["stats"], Use::Only(&["1"], "remove it: every job is part of the result")),
    known(&["thinktime_blocks_type"], Use::Only(&["complete"], REMOVE)),
    known(&["thread"], Use::Silent),
    known(
        &["unified_rw_reporting"],
        Use::Only(&["0", "none"], "remove it: reads and writes are reported by themselves"),
    ),
    known(&["unique_filename"], Use::Silent),
    known(&["unit_base"], Use::Silent),
    known(&["unlink"], Use::Silent),
    // What has no effect.
    known(&["continue_on_error"], Use::Note(ERRORS)),
    known(&["cpumask"], Use::Note(PLACE)),
    known(&["cpus_allowed"], Use::Note(PLACE)),
    known(&["cpus_allowed_policy"], Use::Note(PLACE)),
    known(&["error_dump"], Use::Note(ERRORS)),
    known(&["fixedbufs"], Use::Note(ENGINE)),
    known(&["force_async"], Use::Note(ENGINE)),
    known(&["hipri"], Use::Note(ENGINE)),
    known(&["hugepage-size"], Use::Note("buffers are aligned, and of ordinary pages")),
    known(&["ignore_error"], Use::Note(ERRORS)),
    known(&["io_submit_mode"], Use::Note("requests are sent when they are due, by the thread of their shard")),
    known(&["iodepth_batch_complete_max"], Use::Note(BATCH)),
    known(&["iodepth_batch_complete_min", "iodepth_batch_complete"], Use::Note(BATCH)),
    known(&["iodepth_batch_submit", "iodepth_batch"], Use::Note(BATCH)),
    known(&["iomem", "mem"], Use::Note("buffers are aligned, and of ordinary pages")),
    known(&["iomem_align", "mem_align"], Use::Note("buffers are aligned, and of ordinary pages")),
    known(&["latency_run"], Use::Note("the search ends at the highest rate that meets the target")),
    known(&["log_avg_msec"], Use::Note(LOG)),
    known(&["log_compression"], Use::Note(LOG)),
    known(&["log_entries"], Use::Note(LOG)),
    known(&["log_hist_coarseness"], Use::Note(LOG)),
    known(&["log_hist_msec"], Use::Note(LOG)),
    known(&["log_max_value"], Use::Note(LOG)),
    known(&["log_offset"], Use::Note(LOG)),
    known(&["log_store_compressed"], Use::Note(LOG)),
    known(&["log_unix_epoch"], Use::Note(LOG)),
    known(&["nonvectored"], Use::Note(ENGINE)),
    known(&["numa_cpu_nodes"], Use::Note(PLACE)),
    known(&["numa_mem_policy"], Use::Note(PLACE)),
    known(&["per_job_logs"], Use::Note(LOG)),
    known(&["registerfiles"], Use::Note(ENGINE)),
    known(&["sqthread_poll"], Use::Note(ENGINE)),
    known(&["sqthread_poll_cpu"], Use::Note(ENGINE)),
    known(&["userspace_reap"], Use::Note(ENGINE)),
    known(&["verify_async"], Use::Note(STAMPS)),
    known(&["verify_async_cpus"], Use::Note(STAMPS)),
    known(&["verify_backlog"], Use::Note(STAMPS)),
    known(&["verify_backlog_batch"], Use::Note(STAMPS)),
    known(&["verify_dump"], Use::Note(STAMPS)),
    known(&["verify_fatal"], Use::Note(STAMPS)),
    known(&["verify_interval"], Use::Note(STAMPS)),
    known(&["verify_offset"], Use::Note(STAMPS)),
    known(&["verify_pattern"], Use::Note(STAMPS)),
    known(&["verify_state_save"], Use::Note(STAMPS)),
    known(&["write_bw_log"], Use::Note(LOG)),
    known(&["write_hist_log"], Use::Note(LOG)),
    known(&["write_iops_log"], Use::Note(LOG)),
    known(&["write_lat_log"], Use::Note(LOG)),
    // What would make another load of it.
    known(&["blocksize_range", "bsrange"], Use::Refused("write the lengths and their shares as `bssplit` instead")),
    known(&["blocksize_unaligned", "bs_unaligned"], Use::Refused("direct I/O works in whole sectors: remove it")),
    known(&["bs_is_seq_rand"], Use::Only(&["0"], "write one job for each block size")),
    known(
        &["buffer_pattern"],
        Use::Refused("remove it; `buffer_compress_percentage` sets how compressible blocks are"),
    ),
    known(&["cgroup"], Use::Refused(PRIORITY)),
    known(&["cgroup_nodelete"], Use::Refused(PRIORITY)),
    known(&["cgroup_weight"], Use::Refused(PRIORITY)),
    known(&["cmdprio"], Use::Refused(PRIORITY)),
    known(&["cmdprio_bssplit"], Use::Refused(PRIORITY)),
    known(&["cmdprio_class"], Use::Refused(PRIORITY)),
    known(&["cmdprio_percentage"], Use::Refused(PRIORITY)),
    known(&["cpuchunks"], Use::Refused("jobs of CPU work are written in a job file of this program: type `cpu`")),
    known(&["cpuload"], Use::Refused("jobs of CPU work are written in a job file of this program: type `cpu`")),
    known(&["create_only"], Use::Only(&["0"], REMOVE)),
    known(&["dedupe_mode"], Use::Refused(DEDUPE)),
    known(&["dedupe_percentage"], Use::Only(&["0"], DEDUPE)),
    known(&["dedupe_working_set_percentage"], Use::Refused(DEDUPE)),
    known(&["exec_postrun"], Use::Refused("run the command yourself, after the test")),
    known(&["exec_prerun"], Use::Refused("run the command yourself, before the test")),
    known(&["exit_what"], Use::Refused(REMOVE)),
    known(&["experimental_verify"], Use::Only(&["0"], REMOVE)),
    known(
        &["file_append"],
        Use::Only(&["0"], "appending jobs are written in a job file of this program: type `append`"),
    ),
    known(&["file_service_type"], Use::Refused(SINGLE_FILE)),
    known(&["filename_format"], Use::Refused("remove it; with `directory` each clone has a file of its own")),
    known(&["filesize"], Use::Refused("write `size` for the length of the file, and `io_size` for how much is done")),
    known(&["fill_device", "fill_fs"], Use::Only(&["0"], REMOVE)),
    known(&["flow"], Use::Refused(FLOW)),
    known(&["flow_id"], Use::Refused(FLOW)),
    known(&["flow_sleep"], Use::Refused(FLOW)),
    known(&["flow_watermark"], Use::Refused(FLOW)),
    known(&["gid"], Use::Refused("run the program as that group")),
    known(&["iodepth_low"], Use::Refused("remove it: the queue is filled up as soon as a request is done")),
    known(&["ioscheduler"], Use::Refused("set it in /sys/block/DEVICE/queue/scheduler before the run")),
    known(&["job_max_open_zones"], Use::Refused(ZONES)),
    known(&["lockfile"], Use::Only(&["none"], REMOVE)),
    known(&["lockmem"], Use::Refused(REMOVE)),
    known(&["max_latency"], Use::Refused("remove it, and look at the longest latency of the result")),
    known(&["max_open_zones"], Use::Refused(ZONES)),
    known(&["merge_blktrace_file"], Use::Refused(REPLAY)),
    known(&["nice"], Use::Refused("run the program with `nice`")),
    known(&["nowait"], Use::Only(&["0"], REMOVE)),
    known(&["offset_align"], Use::Refused("write an `offset` in bytes")),
    known(&["opendir"], Use::Refused(SINGLE_FILE)),
    known(&["percentage_random"], Use::Only(&["100"], "write one job for the random and one for the sequential part")),
    known(&["pre_read"], Use::Only(&["0"], "direct I/O does not use the page cache: remove it")),
    known(&["prio"], Use::Refused(PRIORITY)),
    known(&["prioclass"], Use::Refused(PRIORITY)),
    known(&["profile"], Use::Refused("write the load as jobs")),
    known(&["rate_cycle"], Use::Refused(RATE_MINIMUM)),
    known(&["rate_ignore_thinktime"], Use::Only(&["0"], REMOVE)),
    known(&["rate_iops_min"], Use::Refused(RATE_MINIMUM)),
    known(&["rate_min"], Use::Refused(RATE_MINIMUM)),
    known(&["read_beyond_wp"], Use::Refused(ZONES)),
    known(&["read_iolog"], Use::Refused(REPLAY)),
    known(&["read_iolog_chunked"], Use::Refused(REPLAY)),
    known(&["replay_align"], Use::Refused(REPLAY)),
    known(&["replay_no_stall"], Use::Refused(REPLAY)),
    known(&["replay_redirect"], Use::Refused(REPLAY)),
    known(&["replay_scale"], Use::Refused(REPLAY)),
    known(&["replay_skip"], Use::Refused(REPLAY)),
    known(&["replay_time_scale"], Use::Refused(REPLAY)),
    known(&["rw_sequencer"], Use::Refused("remove it: `rw` is read without a `:N` behind it")),
    known(&["sync_file_range"], Use::Refused("direct I/O leaves nothing in the page cache: remove it")),
    known(&["thinktime_spin"], Use::Only(&["0"], "remove it; a `cpu` job in a job file of this program burns time")),
    known(&["trim_backlog"], Use::Refused(TRIMS)),
    known(&["trim_backlog_batch"], Use::Refused(TRIMS)),
    known(&["trim_percentage"], Use::Only(&["0"], TRIMS)),
    known(&["trim_verify_zero"], Use::Refused(TRIMS)),
    known(&["uid"], Use::Refused("run the program as that user")),
    known(&["unlink_each_loop"], Use::Only(&["0"], REMOVE)),
    known(&["verify_only"], Use::Only(&["0"], REMOVE)),
    known(&["verify_state_load"], Use::Only(&["0"], "only what the same run has written is checked")),
    known(&["write_barrier"], Use::Refused(REMOVE)),
    known(&["write_hint"], Use::Only(&["none"], REMOVE)),
    known(&["write_iolog"], Use::Refused(REPLAY)),
    known(&["zone_reset_frequency"], Use::Refused(ZONES)),
    known(&["zone_reset_threshold"], Use::Refused(ZONES)),
    known(&["zonecapacity"], Use::Refused(ZONES)),
    known(&["zonemode"], Use::Only(&["none"], ZONES)),
    known(&["zonerange"], Use::Refused(ZONES)),
    known(&["zonesize"], Use::Refused(ZONES)),
    known(&["zoneskip"], Use::Refused(ZONES)),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn no_option_stands_twice_in_the_table() {
        let mut seen = HashSet::new();
        assert!(super::all_names().all(|name| seen.insert(name)), "{seen:?}");
        assert_eq!(super::find("blocksize").map(super::Known::name), Some("bs"));
    }
}
