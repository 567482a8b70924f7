//! Changes of file content, and their durability. As in `read(2)`, only opening checks permissions.

use crate::permissions::ChangeKind;
use crate::{Allocate, Durability, Error, FileSystem, FileType, Identity, Inode, Result, Vfs};

/// `loff_t`.
const OFFSET_MAX: u64 = i64::MAX as u64;

fn check_end(offset: u64, len: u64) -> Result<()> {
    let end = offset.checked_add(len).filter(|&end| end <= OFFSET_MAX);
    end.map(drop).ok_or(Error::FileTooLarge)
}

impl<F: FileSystem> Vfs<F> {
    /// Writes to a regular file: `pwrite(2)`. Returns the number of bytes, less than given only
    /// without space. An append-only file accepts writes from its end on. Clears setuid and setgid
    /// bits for ordinary users.
    pub fn write(&self, caller: &Identity, file: &Inode<F>, offset: u64, data: &[u8]) -> Result<usize> {
        let repeated = self.check_write(file, offset, data)?;
        if repeated == data.len() {
            return Ok(repeated);
        }
        check_end(offset, data.len() as u64)?;
        self.drop_privileges(caller, file)?;
        Ok(repeated + self.fs().write(file.node(), offset + repeated as u64, &data[repeated..])?)
    }

    /// As [`write`](Self::write), from a front end's write-back cache, which sets times and
    /// permissions.
    pub fn write_back(&self, file: &Inode<F>, offset: u64, data: &[u8]) -> Result<usize> {
        let repeated = self.check_write(file, offset, data)?;
        if repeated == data.len() {
            return Ok(repeated);
        }
        check_end(offset, data.len() as u64)?;
        Ok(repeated + self.fs().write_back(file.node(), offset + repeated as u64, &data[repeated..])?)
    }

    /// In an append-only file, returns how many leading bytes of `data` it has: front ends write
    /// back whole pages.
    fn check_write(&self, file: &Inode<F>, offset: u64, data: &[u8]) -> Result<usize> {
        self.check_content(file, ChangeKind::Append)?;
        let attr = file.attr();
        if self.check_flags(&attr, ChangeKind::Any).is_ok() {
            return Ok(0);
        }
        let below = attr.size.saturating_sub(offset).min(data.len() as u64) as usize;
        let mut present = vec![0; below];
        self.fs().read(file.node(), offset, &mut present)?;
        if present == data[..below] { Ok(below) } else { Err(Error::NotPermitted) }
    }

    /// Writes at the end of a regular file: `O_APPEND`. Returns offset and number of bytes.
    pub fn append(&self, caller: &Identity, file: &Inode<F>, data: &[u8]) -> Result<(u64, usize)> {
        self.check_content(file, ChangeKind::Append)?;
        if data.is_empty() {
            return Ok((file.attr().size, 0));
        }
        self.drop_privileges(caller, file)?;
        self.fs().append(file.node(), data)
    }

    /// Changes the space of a regular file: `fallocate(2)`.
    pub fn allocate(
        &self,
        caller: &Identity,
        file: &Inode<F>,
        offset: u64,
        len: u64,
        how: Allocate,
    ) -> Result<()> {
        self.check_content(file, ChangeKind::Any)?;
        if len == 0 {
            return Err(Error::Invalid);
        }
        check_end(offset, len)?;
        self.drop_privileges(caller, file)?;
        self.fs().allocate(file.node(), offset, len, how)
    }

    fn check_content(&self, file: &Inode<F>, kind: ChangeKind) -> Result<()> {
        self.check_writable()?;
        match file.kind() {
            FileType::Regular => self.check_flags(&file.attr(), kind),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::Invalid),
        }
    }

    /// Makes an inode's earlier changes durable: `fsync(2)`, `fdatasync(2)`.
    pub fn fsync(&self, inode: &Inode<F>, durability: Durability) -> Result<()> {
        self.fs().fsync(inode.node(), durability)
    }

    /// Makes all changes durable: `syncfs(2)`.
    pub fn sync(&self) -> Result<()> {
        self.fs().sync()
    }
}
