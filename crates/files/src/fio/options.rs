//! Defines the treatment of each option of fio.
//!
//! **Why.** A load must not run as another load than its file states. So every option is listed here: it is read, or it
//! changes nothing that is measured, or the file is refused.
//!
//! **How.** One table, ordered by treatment ([`Use`]). [`super::job`] has the readers of the options that are read.
//!
//! **Limits.** The options of fio 3.33 (its manual, "Job file parameters"), and the newer ones that its own examples
//! use. Options of engines that do not exist here are refused as such.
//!
//! **Example.** `find("blocksize")` and `find("bs")` are the same option, called `bs`.

#[derive(Clone, Copy, Debug)]
pub(super) enum Use {
    /// The option is part of the load.
    Read,
    /// The option changes nothing that is measured.
    Silent,
    /// The option has no effect here; a warning states this reason.
    Note(&'static str),
    /// These values describe the behaviour here; others are refused, with this advice.
    Only(&'static [&'static str], &'static str),
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

pub(super) fn all_names() -> impl Iterator<Item = &'static str> {
    all().flat_map(|(names, _)| names)
}

const REMOVE: &str = "remove it, if the load may run without it";
pub(super) const ZONES: &str = "zoned devices are not supported: remove it, or run the file with fio";
const TRIMS: &str = "remove it; a job of its own with `rw=trim` sends trims";
const DEDUPE: &str = "remove it; contents are all different";
const LAYOUT: &str = "files are written in full before the run";
const TURNS: &str = "requests go to the files of a job in turn: remove it, or write one job for each file";
const OTHER_ENGINES: &str =
    "it belongs to an engine that is not here: write ioengine=io_uring or libaio, and remove it";
const PLACEMENT: &str = "requests carry no hints of placement: remove it, or run the file with fio";

/// The treatments, each with its options; other names of an option follow a `|`.
const TABLE: &[(Use, &str)] = &[
    // Options of the load.
    (
        Use::Read,
        "blockalign|ba bs|blocksize bsrange|blocksize_range bssplit buffer_compress_percentage buffer_pattern buffered direct \
         directory do_verify fdatasync filename filename_format filesize fsync group_reporting io_size|io_limit iodepth ioengine \
         kb_base latency_percentile latency_target latency_window loops name new_group norandommap nrfiles|nr_files number_ios numjobs \
         offset|fileoffset offset_align offset_increment percentage_random ramp_time randseed random_distribution rate \
         rate_cycle|ratecycle rate_iops rate_iops_min rate_min|ratemin rate_process runtime|timeout rw|readwrite \
         rwmixread rwmixwrite size startdelay|start_delay steadystate|ss steadystate_duration|ss_dur steadystate_ramp_time|ss_ramp \
         steadystate_check_interval|ss_interval stonewall|wait_for_previous sync thinktime thinktime_blocks \
         thinktime_iotime time_based verify wait_for zero_buffers zonemode zonerange zonesize zoneskip",
    ),
    // Options that change nothing.
    (
        Use::Silent,
        "allow_mounted_write allrandrepeat|randrepeat bwavgtime clat_percentiles clocksource comm create_fsync \
         create_serialize description disk_util fadvise_hint invalidate iopsavgtime job_start_clock_id lat_percentiles \
         openfiles overwrite percentage_sequential percentile_list random_generator refill_buffers rwmixcycle \
         scramble_buffers significant_figures slat_percentiles softrandommap thinkcycles thread|threads unique_filename \
         unit_base unlink",
    ),
    // Options whose other values would make another load.
    (Use::Only(&["1"], "files that do not exist are created, and removed: name those that exist"), "allow_file_create"),
    (
        Use::Only(&["0"], REMOVE),
        "atomic serialize_overlap create_only fill_device|fill_fs nowait rate_ignore_thinktime \
         unlink_each_loop verify_only",
    ),
    (Use::Only(&["roundrobin", "roundrobin:1"], TURNS), "file_service_type"),
    (Use::Only(&["sequential"], "write the requests that follow one another as `rw=randread:N`"), "rw_sequencer"),
    (Use::Only(&["file", "block"], REMOVE), "filetype"),
    (Use::Only(&["1"], "remove it: every job is part of the result"), "stats"),
    (Use::Only(&["complete"], REMOVE), "thinktime_blocks_type"),
    (Use::Only(&["0", "none"], "remove it: reads and writes are reported by themselves"), "unified_rw_reporting"),
    (Use::Only(&["0"], "write one job for each block size"), "bs_is_seq_rand"),
    (Use::Only(&["0"], DEDUPE), "dedupe_percentage"),
    (Use::Only(&["0"], "appending jobs are written in a job file of this program: type `append`"), "file_append"),
    (Use::Only(&["none"], REMOVE), "lockfile write_hint"),
    (Use::Only(&["0"], "direct I/O does not use the page cache: remove it"), "pre_read"),
    (Use::Only(&["0"], "remove it; a `cpu` job in a job file of this program burns time"), "thinktime_spin"),
    (Use::Only(&["0"], TRIMS), "trim_percentage"),
    (Use::Only(&["0"], "only what the same run has written is checked"), "verify_state_load"),
    // Options without effect.
    (Use::Note("every block is made compressible by itself"), "buffer_compress_chunk"),
    (Use::Note(LAYOUT), "create_on_open fallocate"),
    (
        Use::Note("everything is measured anyway"),
        "disable_bw_measurement|disable_bw disable_clat disable_lat disable_slat gtod_cpu gtod_reduce",
    ),
    (
        Use::Note("blocks carry this program's own stamps, and each is checked when it is read"),
        "experimental_verify verify_async verify_async_cpus verify_backlog verify_backlog_batch verify_dump verify_fatal \
         verify_header_seed verify_interval verify_offset verify_pattern verify_pattern_interval verify_policy \
         verify_state_save verify_write_sequence verifysort verifysort_nr",
    ),
    (Use::Note("the time that it takes would not be part of the result"), "end_fsync end_syncfs fsync_on_close"),
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
        "fixedbufs force_async hipri hipri_percentage libaio_vectored nonvectored registerfiles sqthread_poll \
         sqthread_poll_cpu userspace_reap",
    ),
    (
        Use::Note("buffers are aligned, and those made together are in huge pages where the kernel has some"),
        "hugepage-size iomem|mem iomem_align|mem_align",
    ),
    (Use::Note("no list of requests is written: record them with --trace"), "write_iolog"),
    (Use::Note("requests are sent when they are due, by the thread of their shard"), "io_submit_mode"),
    (
        Use::Note("requests are sent as the scheduler lets them go"),
        "iodepth_batch_complete_max iodepth_batch_complete_min|iodepth_batch_complete \
         iodepth_batch_submit|iodepth_batch",
    ),
    (Use::Note("the search ends at the highest rate that meets the target"), "latency_run"),
    (
        Use::Note("write results over time with --format json instead"),
        "block_error_percentiles log_alternate_epoch|log_unix_epoch log_alternate_epoch_clock_id log_avg_msec \
         log_compression log_compression_cpus log_entries log_hist_coarseness log_hist_msec log_issue_time \
         log_max_value|log_window_value log_offset log_prio log_store_compressed per_job_logs write_bw_log \
         write_hist_log write_iops_log write_lat_log",
    ),
    // Options that would make another load.
    (Use::Refused("lengths of a range are multiples of its lower end: remove it"), "blocksize_unaligned|bs_unaligned"),
    (
        Use::Refused("remove it; give jobs different shares in a job file of this program instead"),
        "cgroup cgroup_nodelete cgroup_weight cmdprio cmdprio_bssplit cmdprio_class cmdprio_hint cmdprio_percentage prio \
         prioclass priohint",
    ),
    (
        Use::Refused("jobs of CPU work are written in a job file of this program: type `cpu`"),
        "cpuchunks cpuload cpumode exit_on_io_done",
    ),
    (Use::Refused(DEDUPE), "dedupe_global dedupe_mode dedupe_working_set_percentage"),
    (Use::Refused("run the command yourself, after the test"), "exec_postrun"),
    (Use::Refused("run the command yourself, before the test"), "exec_prerun"),
    (Use::Refused(REMOVE), "exit_what lockmem write_barrier"),
    (Use::Refused("name the files with `filename`"), "opendir"),
    (
        Use::Refused("jobs that pace each other are not supported: remove it, or give each job a `rate_iops`"),
        "flow flow_id flow_sleep flow_watermark",
    ),
    (Use::Refused("run the program as that group"), "gid"),
    (Use::Refused("remove it: the queue is filled up as soon as a request is done"), "iodepth_low"),
    (Use::Refused("set it in /sys/block/DEVICE/queue/scheduler before the run"), "ioscheduler"),
    (
        Use::Refused(ZONES),
        "ignore_zone_limits job_max_open_zones max_open_zones read_beyond_wp recover_zbd_write_error \
         write_zone_remainder zone_reset_frequency zone_reset_threshold zonecapacity",
    ),
    (Use::Refused("remove it, and look at the longest latency of the result"), "max_latency"),
    (
        Use::Refused("traces are not replayed: remove it, and describe the load"),
        "merge_blktrace_file merge_blktrace_iters merge_blktrace_scalars read_iolog read_iolog_chunked replay_align replay_no_stall replay_redirect replay_scale \
         replay_skip replay_time_scale",
    ),
    (Use::Refused("run the program with `nice`"), "nice"),
    (Use::Refused("write the load as jobs"), "profile"),
    (
        Use::Refused(PLACEMENT),
        "data_placement|dataplacement dp_scheme fdp fdp_pli|plids fdp_pli_select|plid_select stream_id",
    ),
    (
        Use::Refused(OTHER_ENGINES),
        "apptag apptag_mask arguments bindname brick busy_poll busy_wait_polling cdb_len chunk_size|chunck_size \
         clientname clustername cmd_type conf cont cuda_io deac direct_write_to_pmem donorname gpu_dev_id \
         gpu_dev_ids grace_time hdfs_use_direct hdfsdirectory hostname http_host http_mode http_object_mode \
         http_pass http_s3_key http_s3_keyid http_s3_region http_s3_security_token http_s3_sse_customer_algorithm \
         http_s3_sse_customer_key http_s3_storage_class http_swift_auth_token http_user http_verbose https \
         initiator inplace interface libblkio_driver libblkio_num_entries libblkio_path libblkio_pre_connect_props \
         libblkio_pre_start_props libblkio_queue_size libblkio_vectored libblkio_wait_mode \
         libblkio_write_zeroes_on_trim listen md_per_io_size mss namenode netsplice nfs_url no_completion_thread \
         nodelay num_range object_class pi_act pi_chk pingpong pool port program proto|protocol \
         rbd_encryption_format rbd_encryption_passphrase rbdname read_mode readfua rocm_io serverip sg_write_mode \
         single-instance|single_instance skip_bad stat_type std_redirect svcl thp touch_objects ttl uncached uri \
         verb verify_bytchk verify_mode volume window_size write_mode writefua xnvme_admin xnvme_async xnvme_be \
         xnvme_dev_nsid xnvme_dev_subnqn xnvme_iovec xnvme_mem xnvme_sync",
    ),
    (Use::Refused("write `ramp_time`, the time before anything counts"), "ramp_size"),
    (Use::Refused("disks are not preconditioned: write jobs that fill them"), "spr_cs spr_num_regions spr_op sprandom"),
    (Use::Refused("positions are drawn, never listed: remove it"), "random_sequence_stride"),
    (Use::Refused("direct I/O leaves nothing in the page cache: remove it"), "sync_file_range"),
    (Use::Refused(TRIMS), "trim_backlog trim_backlog_batch trim_verify_zero"),
    (Use::Refused("run the program as that user"), "uid"),
];

/// Returns the advice for a file with the engine called `name`, which does not exist here.
pub(super) fn engine_help(name: &str) -> &'static str {
    match name {
        "cpuio" => "jobs of CPU work are written in a job file of this program: type `cpu`",
        "mmap" | "libpmem" | "pmemblk" | "dev-dax" | "page_fault" => {
            "requests are never made through mapped memory: write io_uring, libaio, posixaio, psync or null"
        }
        "falloc" | "ftruncate" | "e4defrag" | "filecreate" | "filestat" | "filedelete" | "dircreate" | "dirstat"
        | "dirdelete" => "jobs read, write, flush and trim files, and do nothing else to them: run the file with fio",
        "sg" | "io_uring_cmd" | "xnvme" | "libzbc" | "mtd" | "libblkio" => {
            "devices are used through their block device: write io_uring, libaio, posixaio, psync or null"
        }
        "net" | "netsplice" | "rdma" | "rbd" | "rados" | "gfapi" | "gfapi_async" | "libhdfs" | "http" | "nbd"
        | "nfs" | "libiscsi" | "dfs" | "ime_psync" | "ime_psyncv" | "ime_aio" => {
            "it goes over a network, past every disk of this machine: run the file with fio"
        }
        "exec" => "run the program yourself, beside the test",
        _ => "write io_uring, libaio, posixaio, psync or null",
    }
}

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
