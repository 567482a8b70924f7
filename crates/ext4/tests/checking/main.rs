//! The check against `e2fsck -fn`.

#[path = "../common/mod.rs"]
mod common;

mod clean;
mod damage;
mod fields;
mod generated;
mod images;
mod oracle;
