//! The guard: accepts requests that only read and that name this host correctly.
//!
//! # Why
//! A page on the internet can make a browser on this host request `http://its-name/`, with a name that it points to
//! 127.0.0.1 a moment later (DNS rebinding), and so read data meant for loopback only. Such a request carries the name
//! of that page's host.
//!
//! # How it works
//! The `Host` header must be an address, `localhost` or an allowed name; beyond loopback the name of this host is
//! allowed, too. An address cannot be rebound. Methods are GET and HEAD.
//!
//! # Limits
//! The guard is not a password: any client that reaches the port and names it correctly is answered.
//!
//! # Example
//! `Host: 127.0.0.1:9650` is answered, `Host: evil.example` is not.

use std::net::IpAddr;

use hyper::header::HOST;
use hyper::{Method, Request, StatusCode};

/// The names by which requests may address this host.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    names: Vec<String>,
}

impl Guard {
    /// Returns the guard of a server that listens on `ip` of the host `name`.
    pub(super) fn new(ip: IpAddr, name: &str, allowed: &[String]) -> Guard {
        let mut names = vec!["localhost".to_owned()];
        names.extend(allowed.iter().map(|name| name.to_ascii_lowercase()));
        if !ip.is_loopback() && !name.is_empty() {
            names.push(name.to_ascii_lowercase());
        }
        Guard { names }
    }

    /// Checks a request. Returns the status and a sentence if it is refused.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), (StatusCode, String)> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD: nothing can be changed here".to_owned()));
        }

        // HTTP/1.1 requires one Host; an address in the request line takes precedence.
        let from_line = request.uri().host();
        let mut headers = request.headers().get_all(HOST).iter();
        let named = match (from_line, headers.next(), headers.next()) {
            (Some(host), _, None) => Some(host),
            (None, Some(header), None) => header.to_str().ok().map(without_port),
            _ => None,
        };

        match named {
            Some(name) if self.is_ours(name) => Ok(()),
            Some(_) => Err((
                StatusCode::MISDIRECTED_REQUEST,
                "this server is not known by that name: ask by its address, or start it with --allow-host NAME"
                    .to_owned(),
            )),
            None => Err((StatusCode::BAD_REQUEST, "expected exactly one Host".to_owned())),
        }
    }

    fn is_ours(&self, name: &str) -> bool {
        let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        address.parse::<IpAddr>().is_ok() || self.names.contains(&name)
    }
}

/// Returns `[::1]:80` and `db-7:80` without the port.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) => {
            // An IPv6 address stands in brackets.
            if name.contains(':') && !name.ends_with(']') { host } else { name }
        }
        _ => host,
    }
}

/// Reads a host name without a port.
pub(super) fn parse_name(text: &str) -> Result<String, String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    match text.trim_end_matches('.') {
        name if !name.is_empty() && name.len() <= 253 && name.chars().all(is_name) => Ok(name.to_owned()),
        _ => Err("expected a host name without a port, such as db-7.example.org".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(guard: &Guard, method: &str, uri: &str, hosts: &[&str]) -> u16 {
        let mut request = Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        guard.check(&request.body(()).unwrap()).map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn only_requests_that_read_and_name_this_host_are_answered() {
        let loopback = Guard::new("127.0.0.1".parse().unwrap(), "db-7", &["Disks.example".to_owned()]);
        let open = Guard::new("0.0.0.0".parse().unwrap(), "db-7", &[]);
        let cases: [(&Guard, &str, &str, &[&str], u16); 17] = [
            (&loopback, "GET", "/", &["127.0.0.1:9650"], 200),
            (&loopback, "HEAD", "/", &["localhost"], 200),
            (&loopback, "GET", "/", &["LOCALHOST.:1"], 200),
            (&loopback, "GET", "/", &["[::1]:9650"], 200),
            (&loopback, "GET", "/", &["[::1]"], 200),
            (&loopback, "GET", "/", &["10.1.2.3"], 200),
            (&loopback, "GET", "/", &["disks.example:80"], 200),
            (&loopback, "GET", "/", &["db-7:9650"], 421),
            (&loopback, "GET", "/", &["evil.example"], 421),
            (&loopback, "GET", "/", &["127.0.0.1.evil.example"], 421),
            (&loopback, "GET", "/", &[], 400),
            (&loopback, "GET", "/", &["localhost", "evil.example"], 400),
            (&loopback, "GET", "http://evil.example/", &["localhost"], 421),
            (&loopback, "POST", "/", &["localhost"], 405),
            (&loopback, "OPTIONS", "/", &["localhost"], 405),
            (&open, "GET", "/", &["db-7:9650"], 200),
            (&open, "GET", "/", &["evil.example"], 421),
        ];
        for (guard, method, uri, hosts, expected) in cases {
            assert_eq!(status(guard, method, uri, hosts), expected, "{method} {uri} {hosts:?}");
        }
    }

    #[test]
    fn names_are_names() {
        for (text, is_good) in [("db-7", true), ("db-7.example.", true), ("", false), ("a:80", false), ("a/b", false)] {
            assert_eq!(parse_name(text).is_ok(), is_good, "{text}");
        }
    }
}
