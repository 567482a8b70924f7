//! Identity of an object among objects of the same name.
//!
//! A strong ETag changes with every byte. Without one, length and modification time must do: a
//! replacement of equal length within a second is not noticed.

use crate::Error;
use chrono::{DateTime, Utc};
use object_store::{GetOptions, ObjectMeta};
use serde::{Deserialize, Serialize};

/// An object at opening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectIdentity {
    /// Length in bytes.
    pub len: u64,
    /// ETag with quotes; `W/` marks a weak one.
    pub etag: Option<String>,
    /// Version in a versioned store.
    pub version: Option<String>,
    /// Modification time in seconds since 1970.
    pub modified: Option<i64>,
}

impl ObjectIdentity {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        let modified = meta.last_modified.timestamp();
        ObjectIdentity {
            len: meta.size,
            etag: meta.e_tag.clone(),
            version: meta.version.clone(),
            // 0: the server sends none.
            modified: (modified != 0).then_some(modified),
        }
    }

    /// Whether it has more than the length.
    pub(crate) fn is_telling(&self) -> bool {
        self.etag.is_some() || self.modified.is_some()
    }

    /// In words; `None` where it says no more than the length.
    pub(crate) fn shown(&self) -> Option<String> {
        let mark = match (self.strong_etag(), self.modified) {
            (Some(etag), _) => format!("ETag {etag}"),
            (None, Some(modified)) => format!("changed at {modified}"),
            (None, None) => return None,
        };
        Some(format!("{} bytes, {mark}", self.len))
    }

    fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
    }

    fn modified_at(&self) -> Option<DateTime<Utc>> {
        self.modified.and_then(|seconds| DateTime::from_timestamp(seconds, 0))
    }

    /// Condition: unchanged.
    pub(crate) fn while_same(&self, options: GetOptions) -> GetOptions {
        match self.strong_etag() {
            Some(etag) => options.with_if_match(Some(etag)),
            None => options.with_if_unmodified_since(self.modified_at()),
        }
    }

    /// Condition: changed.
    pub(crate) fn unless_same(&self, options: GetOptions) -> GetOptions {
        match &self.etag {
            Some(etag) => options.with_if_none_match(Some(etag)),
            None => options.with_if_modified_since(self.modified_at()),
        }
    }

    /// Fails for a response about another object.
    pub(crate) fn check(&self, meta: &ObjectMeta) -> Result<(), Error> {
        let now = ObjectIdentity::of(meta);
        let differs = |what: &str, was: String, is: String| {
            Err(Error::Changed { what: format!("{what} was {was} and is {is}") })
        };
        let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".into());
        if self.len != now.len {
            differs("its length", self.len.to_string(), now.len.to_string())
        } else if self.etag != now.etag {
            differs("its ETag", shown(&self.etag), shown(&now.etag))
        } else if self.version != now.version {
            differs("its version", shown(&self.version), shown(&now.version))
        } else if self.strong_etag().is_none() && self.modified != now.modified {
            differs("its time of change", format!("{:?}", self.modified), format!("{:?}", now.modified))
        } else {
            Ok(())
        }
    }
}
