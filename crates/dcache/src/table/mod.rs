pub(crate) mod chunks;
pub(crate) mod dentry;
pub(crate) mod id;
pub(crate) mod index;
pub(crate) mod record;
