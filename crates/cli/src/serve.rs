//! `plimsoll serve`: the disks of this host, live in a browser, and for Prometheus.

mod connections;
mod document;
mod guard;
mod sampling;
mod web;

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::flags::time_within;
use crate::stat::{CapacityFlags, Group, HostFlags, parse_group};
use crate::{interrupt, screen};
use guard::Guard;
use sampling::{Host, Shared};

/// Show the disks of this host live in a browser, and export their figures to Prometheus
///
/// For each device, the page shows the verdict with its reason, U (the part of the capacity that is in use), S (the
/// part of their time that requests wait) and %util; for groups, how even their load is; and the scheduling classes of
/// running Plimsoll programs. /metrics is for Prometheus; /api/stat returns an interval as `plimsoll stat --format
/// json` does.
///
/// The server only reads; requests change nothing. It listens on loopback unless --listen says otherwise. Ctrl-C ends
/// it, with exit code 130.
#[derive(Args, Debug)]
pub(crate) struct ServeArguments {
    /// Address and port to listen on (port 0: any free one)
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9650")]
    listen: String,

    /// Time between two readings of the counters
    #[arg(long, value_name = "TIME", default_value = "1s",
          value_parser = time_within(Duration::from_millis(100), Duration::from_secs(3600)))]
    interval: Duration,

    /// Also answer requests for this host name (repeatable), besides localhost, addresses, and beyond loopback the name
    /// of this host
    #[arg(long, value_name = "NAME", value_parser = guard::parse_name)]
    allow_host: Vec<String>,

    /// A group of devices that should have equal load (repeatable); arrays of this host are groups by themselves
    #[arg(long = "group", value_name = "NAME=DEV,DEV...", value_parser = parse_group)]
    groups: Vec<Group>,

    #[command(flatten)]
    capacity: CapacityFlags,

    #[command(flatten)]
    host: HostFlags,
}

pub(crate) fn run(arguments: &ServeArguments) -> Result<Outcome, Failure> {
    let address = address(&arguments.listen)?;
    let host = Host::start(arguments)?;
    let listener = std::net::TcpListener::bind(address).map_err(|error| cannot_listen(address, &error))?;
    let bound = listener.local_addr().map_err(|error| cannot_listen(address, &error))?;
    let name = host.name().to_owned();
    let guard = Guard::new(bound.ip(), &name, &arguments.allow_host);
    let shared = Arc::new(Shared::new(name, arguments.interval));

    if !bound.ip().is_loopback() {
        screen::warning(&format!(
            "{bound} is not loopback: whoever can reach it can read what the disks do and the names of devices, \
             programs and classes; it has no password"
        ));
    }

    let (ask, asked) = tokio::sync::oneshot::channel::<()>();
    let mut ask = Some(ask);
    interrupt::on_signal(move || drop(ask.take()))?;

    let sampler = host.spawn(Arc::clone(&shared))?;
    screen::note(&format!("listening on http://{bound}/ (Ctrl-C ends it)"));

    let served = web::serve(listener, Arc::clone(&shared), guard, asked);
    shared.end();
    // The thread ends within one reading; if it panicked, it has reported that itself.
    let _ = sampler.join();
    served.map_err(|error| Failure::Machine(format!("cannot serve on {bound}: {error}")))?;
    Ok(Outcome::Interrupted)
}

/// Returns the first address for `text`.
fn address(text: &str) -> Result<SocketAddr, Failure> {
    let expected = "expected an address and a port, such as 127.0.0.1:9650, [::1]:9650 or 0.0.0.0:9650";
    let found = text.to_socket_addrs().map_err(|error| Failure::Input(format!("--listen {text}: {error}; {expected}")));
    found?.next().ok_or_else(|| Failure::Input(format!("--listen {text}: it has no address; {expected}")))
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Failure {
    let remedy = match error.kind() {
        std::io::ErrorKind::AddrInUse => "another program listens there: end it, or name another port with --listen",
        std::io::ErrorKind::PermissionDenied => {
            "ports below 1024 are not for everybody: name a higher one with --listen"
        }
        std::io::ErrorKind::AddrNotAvailable => "this host does not have that address: name one that it has",
        _ => "name another address with --listen",
    };
    Failure::Machine(format!("cannot listen on {address}: {error}; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for text in ["", "9650", "127.0.0.1", "127.0.0.1:99999"] {
            assert_eq!(address(text).map_err(|error| error.exit_code()), Err(2), "{text}");
        }
        let found = address("[::1]:9650").map(|address| address.ip().is_loopback());
        assert!(found.is_ok_and(|is_loopback| is_loopback));
    }
}
