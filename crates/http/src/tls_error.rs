//! Why a certificate or its key is not taken.

/// What is wrong with a file, and what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TlsError {
    /// With that of the certificates.
    Chain(String),
    /// With that of the key.
    Key(String),
}
