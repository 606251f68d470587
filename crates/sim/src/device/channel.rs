//! One server inside a member, with its part of the write buffer.
//!
//! # Why
//! Capacity must come out exactly: a saturated server is never idle, and gives each request its service time.
//!
//! # How it works
//! A virtual-time server is one number, the time at which it becomes free. Buffered writes are a debt: bytes, and the
//! service that they still need. Idle time pays the debt; if it exceeds the buffer, the excess is served at once and in
//! line, which is the write cliff. No work is lost, and none is done twice.
//!
//! # Limits
//! Buffered bytes are served at their average cost, not in order.
//!
//! # Example
//! A buffer for 1 MiB and writes of 1 MiB that take 1 ms: the first returns at once, the second after 1 ms.

/// A virtual-time server and its debt of buffered writes.
#[derive(Debug, Default)]
pub(super) struct Channel {
    /// When the server becomes free: whole nanoseconds, and the fraction of one.
    free_ns: u64,
    free_part: f64,
    debt_bytes: f64,
    /// Service that the buffered bytes still need, in ns at speed 1.
    debt_ns: f64,
}

impl Channel {
    /// Pays debt from the idle time before `at_ns`; `speed` is the service done in a nanosecond. Returns how long after
    /// `at_ns` the server becomes free.
    #[inline]
    pub(super) fn arrive(&mut self, at_ns: u64, speed: f64) -> f64 {
        if self.free_ns >= at_ns {
            return (self.free_ns - at_ns) as f64 + self.free_part;
        }
        let idle_ns = (at_ns - self.free_ns) as f64 - self.free_part;
        (self.free_ns, self.free_part) = (at_ns, 0.0);
        if self.debt_ns > 0.0 {
            let left_ns = self.debt_ns - idle_ns * speed;
            if left_ns > 0.0 {
                self.debt_bytes *= left_ns / self.debt_ns;
                self.debt_ns = left_ns;
            } else {
                (self.debt_bytes, self.debt_ns) = (0.0, 0.0);
            }
        }
        0.0
    }

    /// Stands still from `from_ns` to `until_ns`: pays debt from the idle time before, and starts nothing within.
    pub(super) fn stand_still(&mut self, from_ns: u64, until_ns: u64, speed: f64) {
        self.arrive(from_ns, speed);
        if self.free_ns < until_ns {
            (self.free_ns, self.free_part) = (until_ns, 0.0);
        }
    }

    /// Serves for `service_ns` (real time) after the work already accepted.
    #[inline]
    pub(super) fn serve(&mut self, service_ns: f64) {
        let end = self.free_part + service_ns;
        let whole = end as u64;
        self.free_part = end - whole as f64;
        self.free_ns = self.free_ns.saturating_add(whole);
    }

    /// Takes a write into a buffer of `size_bytes`. Returns the service at speed 1 that exceeds the buffer and must be
    /// done now.
    pub(super) fn buffer(&mut self, size_bytes: f64, len_bytes: f64, service_ns: f64) -> f64 {
        self.debt_bytes += len_bytes;
        self.debt_ns += service_ns;
        if self.debt_bytes <= size_bytes {
            return 0.0;
        }
        let excess_ns = self.debt_ns * (1.0 - size_bytes / self.debt_bytes);
        self.debt_ns -= excess_ns;
        self.debt_bytes = size_bytes;
        excess_ns
    }

    /// Empties the buffer. Returns the service at speed 1 that this takes.
    pub(super) fn take_debt_ns(&mut self) -> f64 {
        self.debt_bytes = 0.0;
        std::mem::take(&mut self.debt_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debt_is_paid_from_idle_time_and_the_excess_in_line() {
        let mut channel = Channel::default();
        assert_eq!(channel.buffer(1000.0, 1000.0, 500.0), 0.0);
        assert_eq!(channel.buffer(1000.0, 1000.0, 500.0), 500.0);
        channel.serve(500.0);
        assert_eq!(channel.arrive(100, 1.0), 400.0);
        // 250 ns of idle time at double speed pay the whole debt.
        assert_eq!(channel.arrive(750, 2.0), 0.0);
        assert_eq!(channel.take_debt_ns(), 0.0);
    }
}
