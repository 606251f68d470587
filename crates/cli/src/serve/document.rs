//! The live page: a complete document, and a small script that updates it.
//!
//! # Why
//! The page must be useful without its script, and the script must not disturb the reader's focus or selection.
//!
//! # How it works
//! The server renders [`whole`] like any page of results; [`Shared::fragment`] is the content of `<main>`, which
//! [`SCRIPT`] fetches each interval. The script keeps focus, selection and scroll positions, pauses while the page is
//! hidden, and shows since when the server has not answered. Without the script the page reloads itself.
//!
//! # Limits
//! Figures older than the sampling's history are lost with the page; `plimsoll stat --record` keeps them.
//!
//! # Example
//! `curl http://127.0.0.1:9650/fragment`.

use plimsoll_show::page;
use plimsoll_show::plot::escaped;

use super::sampling::Shared;

pub(super) const SCRIPT: &str = include_str!("app.js");

/// The icon: a hull with its load line.
pub(super) const ICON: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 16 16\"><circle cx=\"8\" \
                               cy=\"8\" r=\"5\" fill=\"none\" stroke=\"#0072b2\" stroke-width=\"2\"/><path d=\"M0 8h16\" \
                               stroke=\"#0072b2\" stroke-width=\"2\"/></svg>\n";

/// Least seconds between reloads of the page without scripts.
const RELOAD_MIN_S: u64 = 5;

/// Returns the style of all pages and that of this page.
pub(super) fn style() -> String {
    format!("{}{}", page::STYLE, include_str!("live.css"))
}

pub(super) fn whole(shared: &Shared) -> String {
    let name = escaped(shared.host_name());
    let interval = shared.interval();
    let (interval_ms, reload_s) = (interval.as_millis(), interval.as_secs().max(RELOAD_MIN_S));
    let every = plimsoll_figures::units::format_duration_ns(crate::flags::nanos(interval));
    let version = env!("CARGO_PKG_VERSION");

    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <noscript><meta http-equiv=\"refresh\" content=\"{reload_s}\"></noscript>\n\
         <title>Disks of {name}</title>\n<link rel=\"icon\" href=\"/icon.svg\" type=\"image/svg+xml\">\n\
         <link rel=\"stylesheet\" href=\"/style.css\">\n<script src=\"/app.js\" defer></script>\n</head>\n\
         <body data-interval-ms=\"{interval_ms}\">\n<a class=\"skip\" href=\"#content\">To the content</a>\n\
         <header>\n<h1>Disks of {name}</h1>\n<div class=\"bar\"><p id=\"connection\" role=\"status\">As of when it was \
         loaded</p>\n<button type=\"button\" id=\"pause\" hidden>Pause</button></div>\n\
         <noscript><p>Without scripts the page loads itself anew every {reload_s} s. <a href=\"/\">Load it \
         now</a></p></noscript>\n</header>\n<main id=\"content\" tabindex=\"-1\">\n{}</main>\n\
         <footer><p>A look every {every}. For programs: <a href=\"/metrics\">metrics</a>, <a href=\"/api/stat\">the \
         last interval as JSON</a>. plimsoll {version}</p></footer>\n</body>\n</html>\n",
        shared.fragment()
    )
}
