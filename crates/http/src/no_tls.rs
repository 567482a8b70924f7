//! No TLS: the feature `tls` is off.

use crate::tls_error::TlsError;
use std::io;

/// The certificate of a server and its private key: this build has none.
#[derive(Clone)]
pub enum Tls {}

impl Tls {
    /// Fails.
    pub fn parse(_: &[u8], _: &[u8]) -> Result<Self, TlsError> {
        Err(TlsError::Chain("cannot be used: this build has no TLS (cargo feature `tls`)".into()))
    }

    pub(crate) async fn accept<S>(&self, _: S) -> io::Result<S> {
        match *self {}
    }
}
