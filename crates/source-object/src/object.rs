//! An object of a store, fixed at opening.
//!
//! Each range request is conditional on the identity, and the response is checked again, because
//! some servers ignore conditions.

use crate::Error;
use crate::address::Place;
use crate::identity::ObjectIdentity;
use bytes::{Bytes, BytesMut};
use dentree_blockdev::Transfers;
use dentree_source_blocks::{Fetched, Origin};
use futures_util::StreamExt;
use object_store::{GetOptions, GetResult};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// For truncated bodies.
const TRIES: usize = 4;

/// Object of a store.
#[derive(Debug)]
pub struct Object {
    place: Place,
    pub(crate) identity: ObjectIdentity,
    requests: AtomicU64,
    fetched: AtomicU64,
}

/// Result of the first request.
pub(crate) enum First {
    /// Start of the object.
    Bytes(Bytes),
    /// The cached identity is still valid.
    Unchanged,
}

impl Object {
    /// Fetches the first `len` bytes unless the object is `known`. Tries the next place if access
    /// is denied.
    pub(crate) async fn open(
        places: Vec<Place>,
        len: u64,
        known: Option<&ObjectIdentity>,
    ) -> Result<(Self, First), Error> {
        let mut refusal = None;
        for place in places {
            match Self::open_at(place, len, known).await {
                Err(error @ Error::Denied { .. }) => refusal = refusal.or(Some(error)),
                // The machine has no role: report the first refusal.
                Err(error) => return Err(refusal.unwrap_or(error)),
                opened => return opened,
            }
        }
        Err(refusal.unwrap_or(Error::NotFound))
    }

    async fn open_at(place: Place, len: u64, known: Option<&ObjectIdentity>) -> Result<(Self, First), Error> {
        let mut options = GetOptions::new().with_range(Some(0..len));
        if let Some(known) = known {
            options = known.unless_same(options);
        }
        let opened = place.store.get_opts(&place.path, options).await;
        let object = |place, identity| Object {
            place,
            identity,
            requests: AtomicU64::new(1),
            fetched: AtomicU64::default(),
        };
        let result = match (opened, known) {
            (Ok(result), _) => result,
            (Err(object_store::Error::NotModified { .. }), Some(known)) => {
                return Ok((object(place, known.clone()), First::Unchanged));
            }
            (Err(error), _) => return Err(Error::of_request(&error, &place.credentials)),
        };
        let object = object(place, ObjectIdentity::of(&result.meta));
        let range = result.range.clone();
        let bytes = match object.body(result, &range).await {
            Ok(bytes) => bytes,
            Err(_) => object.fetch(range).await?.bytes,
        };
        Ok((object, First::Bytes(bytes)))
    }

    async fn fetch_once(&self, range: Range<u64>) -> Result<Fetched, Error> {
        let began = Instant::now();
        self.requests.fetch_add(1, Relaxed);
        let options = self.identity.while_same(GetOptions::new().with_range(Some(range.clone())));
        let result = self.place.store.get_opts(&self.place.path, options).await;
        let result = result.map_err(|error| Error::of_request(&error, &self.place.credentials))?;
        self.identity.check(&result.meta)?;
        let latency = began.elapsed();
        let bytes = self.body(result, &range).await?;
        Ok(Fetched { bytes, latency, transfer: began.elapsed() - latency })
    }

    async fn body(&self, result: GetResult, range: &Range<u64>) -> Result<Bytes, Error> {
        let wanted = range.end - range.start;
        let mut bytes = BytesMut::with_capacity(usize::try_from(wanted).unwrap_or_default());
        let mut parts = result.into_stream();
        while let Some(part) = parts.next().await {
            let part = part.map_err(|error| Error::of_request(&error, &self.place.credentials))?;
            self.fetched.fetch_add(part.len() as u64, Relaxed);
            bytes.extend_from_slice(&part);
            if bytes.len() as u64 > wanted {
                break;
            }
        }
        if bytes.len() as u64 == wanted {
            return Ok(bytes.freeze());
        }
        let problem = format!("the server sent {} bytes or more where {wanted} were asked for", bytes.len());
        Err(Error::Request { problem })
    }
}

impl Origin for Object {
    type Error = Error;

    const FAILS_BY_RANGE: bool = false;

    fn size(&self) -> u64 {
        self.identity.len
    }

    fn identity(&self) -> Option<String> {
        self.identity.shown()
    }

    /// Asks again where an answer is cut off.
    async fn fetch(&self, range: Range<u64>) -> Result<Fetched, Error> {
        let mut failed = None;
        for _ in 0..TRIES {
            match self.fetch_once(range.clone()).await {
                Err(error @ Error::Request { .. }) => failed = Some(error),
                fetched => return fetched,
            }
        }
        Err(failed.unwrap_or(Error::NotFound))
    }

    fn transfers(&self) -> Transfers {
        Transfers {
            requests: self.requests.load(Relaxed),
            fetched_bytes: self.fetched.load(Relaxed),
            ..Transfers::default()
        }
    }
}
