//! Changes kept beside what they change.

use crate::{Error, Options};
use dentree_blockdev::BlockDevice;
use std::sync::Arc;

/// The overlay of the options over `base`, or `base` where they name none. `name` is an absolute
/// path or an address, `format` what qemu calls the format of what is there.
#[cfg(feature = "qcow2")]
pub(crate) fn lay_over(
    base: Arc<dyn BlockDevice>,
    format: &'static str,
    name: &str,
    options: &Options,
) -> Result<Arc<dyn BlockDevice>, Error> {
    use dentree_source_qcow2::{Base, Qcow2Device};
    let Some(overlay) = &options.overlay else { return Ok(base) };
    let base = Base { device: base, name: name.to_owned(), format };
    Ok(Qcow2Device::overlay(overlay, base, options.access)?)
}

#[cfg(not(feature = "qcow2"))]
pub(crate) fn lay_over(
    base: Arc<dyn BlockDevice>,
    _: &'static str,
    _: &str,
    options: &Options,
) -> Result<Arc<dyn BlockDevice>, Error> {
    if options.overlay.is_some() { Err(Error::NoOverlays) } else { Ok(base) }
}
