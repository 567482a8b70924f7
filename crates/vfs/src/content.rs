//! Changing what is in a file, and making sure that it stays.
//!
//! Like `read`, none of this checks permissions: whoever opened the file did. `who` matters for the bits that writing takes
//! away.

use crate::permissions::Touch;
use crate::{Allocate, Durability, Error, FileSystem, FileType, Identity, Inode, Result, Vfs};

/// The largest offset, as `loff_t`.
const OFFSET_MAX: u64 = i64::MAX as u64;

fn check_end(offset: u64, len: u64) -> Result<()> {
    let end = offset.checked_add(len).filter(|&end| end <= OFFSET_MAX);
    end.map(drop).ok_or(Error::FileTooLarge)
}

impl<F: FileSystem> Vfs<F> {
    /// Writes `data` at byte `offset` of a regular file and lengthens it where need be: `pwrite(2)`. Answers how many bytes: fewer than
    /// given only where space ran out behind them. An append-only file takes what comes behind its end. Takes setuid and setgid bits away unless `who` is the superuser.
    pub fn write(&self, who: &Identity, file: &Inode<F>, offset: u64, data: &[u8]) -> Result<usize> {
        let repeated = self.check_write(file, offset, data)?;
        if repeated == data.len() {
            return Ok(repeated);
        }
        check_end(offset, data.len() as u64)?;
        self.drop_privileges(who, file)?;
        Ok(repeated + self.fs().write(file.node(), offset + repeated as u64, &data[repeated..])?)
    }

    /// Writes what a front door has gathered from programs, which has done what else a write does: set the times, and taken setuid and
    /// setgid bits away. Answers as [`write`](Self::write).
    pub fn write_back(&self, file: &Inode<F>, offset: u64, data: &[u8]) -> Result<usize> {
        let repeated = self.check_write(file, offset, data)?;
        if repeated == data.len() {
            return Ok(repeated);
        }
        check_end(offset, data.len() as u64)?;
        Ok(repeated + self.fs().write_back(file.node(), offset + repeated as u64, &data[repeated..])?)
    }

    /// Whether these bytes may be written; returns how many of them are there already. Those are looked at
    /// in an append-only file alone: a front door that gathers whole pages repeats what was there before
    /// what was appended.
    fn check_write(&self, file: &Inode<F>, offset: u64, data: &[u8]) -> Result<usize> {
        self.check_content(file, Touch::Append)?;
        let attr = file.attr();
        if self.check_flags(&attr, Touch::Change).is_ok() {
            return Ok(0);
        }
        let below = attr.size.saturating_sub(offset).min(data.len() as u64) as usize;
        let mut there = vec![0; below];
        self.fs().read(file.node(), offset, &mut there)?;
        if there == data[..below] { Ok(below) } else { Err(Error::NotPermitted) }
    }

    /// Writes `data` at the end of a regular file, wherever that is by now: `write(2)` with `O_APPEND`. Answers the offset, and how many
    /// bytes.
    pub fn append(&self, who: &Identity, file: &Inode<F>, data: &[u8]) -> Result<(u64, usize)> {
        self.check_content(file, Touch::Append)?;
        if data.is_empty() {
            return Ok((file.attr().size, 0));
        }
        self.drop_privileges(who, file)?;
        self.fs().append(file.node(), data)
    }

    /// Changes the space under `len` bytes from `offset` of a regular file: `fallocate(2)`.
    pub fn allocate(
        &self,
        who: &Identity,
        file: &Inode<F>,
        offset: u64,
        len: u64,
        how: Allocate,
    ) -> Result<()> {
        self.check_content(file, Touch::Change)?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        check_end(offset, len)?;
        self.drop_privileges(who, file)?;
        self.fs().allocate(file.node(), offset, len, how)
    }

    fn check_content(&self, file: &Inode<F>, touch: Touch) -> Result<()> {
        self.check_writable()?;
        match file.kind() {
            FileType::Regular => self.check_flags(&file.attr(), touch),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Returns once what was written to `inode` before, or for a directory the changes of its names, will survive a power cut:
    /// `fsync(2)`, `fdatasync(2)`.
    pub fn fsync(&self, inode: &Inode<F>, durability: Durability) -> Result<()> {
        self.fs().fsync(inode.node(), durability)
    }

    /// As [`fsync`](Self::fsync), for everything: `syncfs(2)`.
    pub fn sync(&self) -> Result<()> {
        self.fs().sync()
    }
}
