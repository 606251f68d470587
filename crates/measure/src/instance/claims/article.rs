//! The claims of ScyllaDB's article on i3en.24xlarge of May 2019, with the known errors and their proofs.
//!
//! **Why.** The article is the one comparison of machines whose every number is recomputed here.
//!
//! **How.** [`claims`] is a table in the order of the article. A wrong claim is followed by its known error: the claim
//! that would have been right.
//!
//! **Limits.** Machines and figures are those of the cards in [`crate::instance::published`]; a test checks that each
//! claim can be computed.

use super::{Claim, Factor, Formula, PRICE, SlipKind};

pub(super) const SOURCE: &str = "ScyllaDB blog, AWS new I3en Meganode";
pub(super) const DATE: &str = "2019-05";

const I3: &str = "i3.16xlarge";
const METAL: &str = "i3.metal";
const I3EN: &str = "i3en.24xlarge";

/// The machines, and the price of a core of each for a year.
pub(super) const MACHINES: [(&str, &str); 3] = [(I3, "880.50 USD"), (METAL, "773.78 USD"), (I3EN, "1258.43 USD")];

const CORES: &str = "cpu.cores";
const BYTES: &str = "disk.bytes";
const READ_IOPS: &str = "disk.read_iops";
const READ_BYTES: &str = "disk.read_bytes_per_s";
const WRITE_BYTES: &str = "disk.write_bytes_per_s";

/// Returns the storage per core of a machine.
fn bytes_per_core(of: &'static str) -> Formula {
    Formula::product([Factor::Figure(of, BYTES)], [Factor::Figure(of, CORES)])
}

/// Returns the storage per core of a machine with `bytes` of storage.
fn stated_bytes_per_core(bytes: &'static str, of: &'static str) -> Formula {
    Formula::product([Factor::Number(bytes)], [Factor::Figure(of, CORES)])
}

/// Returns the price per TB of a machine for a year; `bytes` is its storage.
fn price_per_tb(of: &'static str, bytes: Factor) -> Formula {
    Formula::product([Factor::Figure(of, PRICE), Factor::Figure(of, CORES)], [bytes])
}

fn rate(amount: &'static str, time: &'static str) -> Formula {
    Formula::product([Factor::Number(amount)], [Factor::Number(time)])
}

/// Returns the difference in `figure` of i3en.24xlarge to `against`, in per cent.
fn gain(figure: &'static str, against: &'static str) -> Formula {
    Formula::Percent { figure, of: I3EN, against }
}

fn size_of_keys(keys: &'static str) -> Formula {
    Formula::product([Factor::Number("5"), Factor::Number(keys), Factor::Number("1 kB")], [])
}

pub(super) fn claims() -> Vec<Claim> {
    let table_1 = [
        Claim::new("i3.16xlarge has 480 GB per core", bytes_per_core(I3), "480 GB").slip(
            SlipKind::OtherInput,
            stated_bytes_per_core("15.36 TB", I3),
            "that takes \"local disk capacity\" of 15,360 GB in place of 15,200 GB; the same explains \"i3.metal has \
             426 GB per core\"",
        ),
        Claim::new("i3.metal has 426 GB per core", bytes_per_core(METAL), "426 GB").slip(
            SlipKind::OtherInput,
            stated_bytes_per_core("15.36 TB", METAL),
            "that takes \"local disk capacity\" of 15,360 GB in place of 15,200 GB; the same explains \"i3.16xlarge \
             has 480 GB per core\"",
        ),
        Claim::new("i3en.24xlarge has 1.2 TB per core", bytes_per_core(I3EN), "1.2 TB"),
        Claim::new(
            "a TB of i3.16xlarge costs 1,857.96 USD a year",
            price_per_tb(I3, Factor::Figure(I3, BYTES)),
            "1,857.96 USD/TB",
        ),
        Claim::new(
            "a TB of i3.metal costs 1,857.06 USD a year",
            price_per_tb(METAL, Factor::Figure(METAL, BYTES)),
            "1,857.06 USD/TB",
        )
        .slip(
            SlipKind::RoundedInput,
            price_per_tb(METAL, Factor::Number("15 TB")),
            "that is computed from \"local disk capacity\" of 15 TB, which is 15.2 TB; so it is 1,832.637 USD/TB",
        ),
        Claim::new(
            "a TB of i3en.24xlarge costs 1,006.75 USD a year",
            price_per_tb(I3EN, Factor::Figure(I3EN, BYTES)),
            "1,006.75 USD/TB",
        ),
    ];

    let specifications = [
        Claim::new("i3en.24xlarge has 50 % more cores than i3.metal", gain(CORES, METAL), "50 %").slip(
            SlipKind::OtherBase,
            gain(CORES, I3),
            "that is i3en.24xlarge (48) against i3.16xlarge (32), +50.0 %; against i3.metal (36) it is +33.3 %",
        ),
        Claim::new("i3en.24xlarge has 400 % more storage than i3.metal", gain(BYTES, METAL), "400 %").slip(
            SlipKind::OfForMore,
            Formula::Share { figure: BYTES, of: I3EN, against: METAL },
            "\"% more\" for \"% of\": i3en.24xlarge (60 TB) is 394.7 % of i3.metal (15.2 TB), a difference of +294.7 %",
        ),
        Claim::new("the L3 cache of i3en is a 36 % decrease", gain("cpu.l3_bytes", I3), "-36 %").slip_stated(
            SlipKind::SwappedBase,
            Formula::Percent { figure: "cpu.l3_bytes", of: I3, against: I3EN },
            "36 %",
            "base and compared are swapped: i3.16xlarge (45 MiB) against i3en.24xlarge (33 MiB) is +36.4 %, but \
             i3en.24xlarge against i3.16xlarge is -26.7 %",
        ),
        Claim::new("the I3 family reads 15 GiB/s", Formula::Value { figure: READ_BYTES, of: I3 }, "15 GiB/s"),
    ];

    let table_2 = [
        Claim::new("stress-ng cache, difference", gain("stress_ng.cache", I3), "41.51 %"),
        Claim::new("stress-ng cpu, difference", gain("stress_ng.cpu", I3), "36.70 %"),
        Claim::new("stress-ng dentry, difference", gain("stress_ng.dentry", I3), "25.31 %"),
        Claim::new("stress-ng icache, difference", gain("stress_ng.icache", I3), "12.48 %"),
        Claim::new("stress-ng matrix, difference", gain("stress_ng.matrix", I3), "-2.02 %"),
        Claim::new("stress-ng memcpy, difference", gain("stress_ng.memcpy", I3), "-32.85 %"),
        Claim::new("stress-ng qsort, difference", gain("stress_ng.qsort", I3), "20.52 %"),
        Claim::new("stress-ng timer, difference", gain("stress_ng.timer", I3), "13.67 %"),
        Claim::new("stress-ng tsc, difference", gain("stress_ng.tsc", I3), "16.03 %"),
    ];

    // The TBytes and GBytes of iperf are binary.
    let network = [
        Claim::new("6.49 TB in 600 s are 95.1 Gbit/s", rate("6.49 TB", "600 s"), "95.1 Gbit/s").slip(
            SlipKind::BinaryPrefix,
            rate("6.49 TiB", "600 s"),
            "right if the decimal prefix of its bytes is read as TiB (2^40); as written it is 86.53 Gbit/s",
        ),
        Claim::new(
            "sends north of 5 million packets a second",
            Formula::Value { figure: "network.packets_sent_per_s", of: I3EN },
            "5 M/s",
        )
        .above(),
        Claim::new(
            "22 % of the packets are lost",
            Formula::Value { figure: "network.packet_loss_pct", of: I3EN },
            "22 %",
        ),
        Claim::new("4.26 GB in 60.3 s are 607 Mbit/s", rate("4.26 GB", "60.3 s"), "607 Mbit/s").slip(
            SlipKind::BinaryPrefix,
            rate("4.26 GiB", "60.3 s"),
            "right if the decimal prefix of its bytes is read as GiB (2^30); as written it is 565.2 Mbit/s",
        ),
    ];

    let storage = [
        Claim::new(
            "i3en.24xlarge reads at 2 M IOPS, as advertised",
            Formula::Value { figure: READ_IOPS, of: I3EN },
            "2 M IOPS",
        )
        .at_least(),
        Claim::new(
            "i3en.24xlarge reads 16 GB/s, as advertised",
            Formula::Value { figure: READ_BYTES, of: I3EN },
            "16 GB/s",
        )
        .at_least(),
        Claim::new("write bandwidth is 27 % higher than that of i3.16xlarge", gain(WRITE_BYTES, I3), "27 %"),
        Claim::new("write bandwidth is 27 % higher than that of i3.metal", gain(WRITE_BYTES, METAL), "27 %"),
        Claim::new("random reads are 66 % faster than on i3.16xlarge", gain(READ_IOPS, I3), "66 %"),
    ];

    let application =
        [Claim::new("5 tables of 90 billion keys of 1 kB are around 45 TB", size_of_keys("90 G"), "45 TB").slip(
            SlipKind::PowerOfTen,
            size_of_keys("9 G"),
            "off by a power of ten: it is 450.0 TB, so what is stated is 10 times too small",
        )];
    table_1.into_iter().chain(specifications).chain(table_2).chain(network).chain(storage).chain(application).collect()
}
