//! Errors of objects: what, where, and what to do.

use object_store::client::{HttpError, HttpErrorKind};
use std::io;

/// Why an object cannot be opened or read.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Invalid address.
    #[error(
        "{problem}: an address is https://HOST/PATH, s3://BUCKET/KEY, gs://BUCKET/KEY or az://CONTAINER/KEY"
    )]
    Address {
        /// Problem.
        problem: String,
    },
    /// A setting of the store is missing or invalid.
    #[error("{problem}")]
    Settings {
        /// Which setting, and where to set it.
        problem: String,
    },
    /// No such object.
    #[error("no such object: check the name, and the bucket or container")]
    NotFound,
    /// Access denied.
    #[error("access is denied ({status}): {looked_for}")]
    Denied {
        /// HTTP status.
        status: &'static str,
        /// Credentials used or searched.
        looked_for: String,
    },
    /// The server sends no ranges.
    #[error(
        "the server sends no ranges of bytes, only the whole: download the image, or serve it by a server with ranges, as nginx"
    )]
    NoRanges,
    /// The object changed since opening.
    #[error("the object changed while it was read: {what}; read it again from the beginning")]
    Changed {
        /// Difference.
        what: String,
    },
    /// TLS failed.
    #[error("TLS failed: {problem}; a certificate authority of your own is named by SSL_CERT_FILE")]
    Tls {
        /// Reason.
        problem: String,
    },
    /// The server is unreachable or its responses are invalid, despite retries.
    #[error("{problem}")]
    Request {
        /// Reason, with the number of tries.
        problem: String,
    },
    /// The network threads cannot start.
    #[error("cannot start the threads for the network: {problem}")]
    Threads {
        /// Reason.
        problem: String,
    },
}

impl Error {
    /// Classifies the error of a request. `looked_for` names the credentials used.
    pub(crate) fn of_request(error: &object_store::Error, looked_for: &str) -> Self {
        use object_store::Error as Store;
        let denied = |status| Error::Denied { status, looked_for: looked_for.to_owned() };
        match error {
            Store::NotFound { .. } => Error::NotFound,
            Store::Unauthenticated { .. } => denied("401 Unauthorized"),
            Store::PermissionDenied { .. } => denied("403 Forbidden"),
            Store::Precondition { .. } => Error::Changed { what: "the server has another now".into() },
            Store::NotSupported { source } if source.to_string().starts_with("Range") => Error::NoRanges,
            _ => Self::of_chain(error),
        }
    }

    fn of_chain(error: &object_store::Error) -> Self {
        let root = causes(error).last().map(ToString::to_string).unwrap_or_default();
        if root == "Received non-partial response when range requested" {
            return Error::NoRanges;
        }
        if root.contains("tls handshake") || causes(error).any(|cause| tls(cause).is_some()) {
            return Error::Tls { problem: root };
        }
        let kind = causes(error).find_map(|cause| cause.downcast_ref::<HttpError>()).map(HttpError::kind);
        let what = match kind {
            Some(HttpErrorKind::Connect) => "cannot connect to the server",
            Some(HttpErrorKind::Timeout) => "the server does not answer in time",
            Some(_) => "the connection failed",
            None => "the server's answer is no good",
        };
        Error::Request { problem: format!("{what}, tried several times: {root}") }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NotFound => io::ErrorKind::NotFound,
            Error::Denied { .. } => io::ErrorKind::PermissionDenied,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

/// An error of TLS in the chain of causes.
fn tls<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    let within = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error.downcast_ref().or_else(|| within?.downcast_ref())
}

fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}
