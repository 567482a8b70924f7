//! A request from start to end: counted and logged.

use crate::log::{Access, Log};
use crate::metrics::Counters;
use hyper::StatusCode;
use jiff::Zoned;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

#[derive(Clone)]
pub(crate) struct Ledger {
    pub(crate) counters: Arc<Counters>,
    pub(crate) log: Arc<dyn Log>,
}

/// Logged when dropped.
pub(crate) struct Exchange {
    ledger: Ledger,
    pub(crate) access: Access,
}

impl Exchange {
    /// Status until there is a response: the client did not wait.
    const UNANSWERED: u16 = 499;

    pub(crate) fn begin(ledger: &Ledger, peer: IpAddr, request: String) -> Self {
        ledger.counters.in_flight.fetch_add(1, Relaxed);
        let (time, status) = (Zoned::now(), Self::UNANSWERED);
        let access = Access { peer, user: None, time, request, status, bytes: 0 };
        Exchange { ledger: ledger.clone(), access }
    }

    /// A connection that never became a request.
    pub(crate) fn refused(ledger: &Ledger, peer: IpAddr, status: StatusCode) {
        Exchange::begin(ledger, peer, String::new()).access.status = status.as_u16();
    }

    pub(crate) fn sent(&mut self, bytes: usize) {
        self.access.bytes += bytes as u64;
        self.ledger.counters.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn cut(&mut self) {
        self.ledger.counters.cut.fetch_add(1, Relaxed);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.ledger.counters.in_flight.fetch_sub(1, Relaxed);
        self.ledger.counters.answered(self.access.status);
        self.ledger.log.access(&self.access);
    }
}
