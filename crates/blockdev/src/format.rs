//! Formats that are mistaken for raw images, by magic number, with the program that serves or opens
//! each.
//!
//! Crates for file types know archives, but not LUKS, LVM, EWF or file systems.

use std::fmt;
use std::io;

use crate::BlockDevice;

/// A recognized format that is not read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Common name with article.
    pub name: &'static str,
    /// How to get a raw image or the files.
    pub remedy: &'static str,
    /// Program that serves it as a raw image.
    pub engine: Option<Engine>,
}

/// A program that serves a format over NBD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// qemu-nbd, with its name for the format.
    QemuNbd(&'static str),
    /// nbdkit, with the filter for the format.
    Nbdkit(&'static str),
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Format { name, remedy, .. } = self;
        write!(f, "{name}, not an ext2, ext3 or ext4 file system: {remedy}")
    }
}

/// Offset, bytes, format.
type Magic = (u64, &'static [u8], Format);

const fn magic(at: u64, bytes: &'static [u8], name: &'static str, remedy: &'static str) -> Magic {
    (at, bytes, Format { name, remedy, engine: None })
}

/// A virtual disk, by its name for qemu-nbd.
const fn disk(at: u64, bytes: &'static [u8], format: &'static str, name: &'static str) -> Magic {
    (at, bytes, Format { name, remedy: CONVERT, engine: Some(Engine::QemuNbd(format)) })
}

const fn packed(
    bytes: &'static [u8],
    filter: &'static str,
    name: &'static str,
    remedy: &'static str,
) -> Magic {
    (0, bytes, Format { name, remedy, engine: Some(Engine::Nbdkit(filter)) })
}

const CONVERT: &str = "`qemu-img convert -O raw FILE disk.img` (package qemu-utils) makes a raw image of it";
const EWF: &str = "`ewfmount FILE DIR` (package ewf-tools) shows it as the raw image DIR/ewf1";
const LOOP: &str = "`mount -o loop,ro FILE DIR` as root reads it, or `7z x FILE`";
const KERNEL: &str = "`mount -o loop,ro FILE DIR` as root reads it";

/// In this order: any bytes may precede an ISO 9660 header.
const MAGICS: &[Magic] = &[
    disk(0, b"QFI\xfb", "qcow2", "a qcow2 disk image"),
    disk(0, b"KDMV", "vmdk", "a VMDK disk image"),
    disk(0, b"COWD", "vmdk", "a VMDK disk image"),
    disk(0, b"# Disk DescriptorFile", "vmdk", "the description of a VMDK disk image"),
    disk(0x40, &[0x7f, 0x10, 0xda, 0xbe], "vdi", "a VDI disk image"),
    disk(0, b"vhdxfile", "vhdx", "a VHDX disk image"),
    disk(0, b"conectix", "vpc", "a VHD disk image"),
    magic(
        0,
        &[0x3a, 0xff, 0x26, 0xed],
        "an Android sparse image",
        "`simg2img FILE disk.img` (package android-sdk-libsparse-utils) makes a raw image of it",
    ),
    magic(0, b"EVF\x09\x0d\x0a\xff\x00", "an EWF (EnCase) image", EWF),
    magic(0, b"EVF2\x0d\x0a\x81\x00", "an EWF (EnCase) image, version 2", EWF),
    packed(&[0x1f, 0x8b], "gzip", "compressed by gzip", "`gzip -dc FILE > disk.img` unpacks it"),
    packed(b"\xfd7zXZ\x00", "xz", "compressed by xz", "`xz -dc FILE > disk.img` unpacks it"),
    magic(0, &[0x28, 0xb5, 0x2f, 0xfd], "compressed by zstd", "`zstd -dc FILE > disk.img` unpacks it"),
    magic(0, &[0x04, 0x22, 0x4d, 0x18], "compressed by lz4", "`lz4 -dc FILE > disk.img` unpacks it"),
    magic(0, b"BZh", "compressed by bzip2", "`bzip2 -dc FILE > disk.img` unpacks it"),
    magic(0, b"PK\x03\x04", "a zip archive", "`unzip FILE` unpacks it"),
    magic(0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "`7z x FILE` unpacks it"),
    magic(
        0,
        b"LUKS\xba\xbe",
        "encrypted by LUKS",
        "`cryptsetup open FILE NAME` as root opens it as /dev/mapper/NAME",
    ),
    magic(0, b"hsqs", "a squashfs file system", "`unsquashfs FILE` (package squashfs-tools) unpacks it"),
    magic(0, b"XFSB", "an XFS file system", KERNEL),
    magic(3, b"NTFS    ", "an NTFS file system", LOOP),
    magic(3, b"EXFAT   ", "an exFAT file system", LOOP),
    magic(0x36, b"FAT", "a FAT file system", "`mdir -i FILE` and `mcopy -i FILE` (package mtools) read it"),
    magic(0x52, b"FAT32", "a FAT file system", "`mdir -i FILE` and `mcopy -i FILE` (package mtools) read it"),
    magic(0x101, b"ustar", "a tar archive", "`tar xf FILE` unpacks it"),
    magic(0x200, b"LABELONE", "an LVM physical volume", LVM),
    magic(0, b"LABELONE", "an LVM physical volume", LVM),
    magic(0x400, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system", KERNEL),
    magic(0x400, &[0xe2, 0xe1, 0xf5, 0xe0], "an EROFS file system", KERNEL),
    magic(
        0x1000,
        &[0xfc, 0x4e, 0x2b, 0xa9],
        "a member of a Linux RAID",
        "`mdadm --assemble` as root joins its members",
    ),
    magic(0xff6, b"SWAPSPACE2", "swap space", "there are no files in it"),
    magic(0x8001, b"CD001", "an ISO 9660 image", LOOP),
    magic(
        0x1_0040,
        b"_BHRfS_M",
        "a Btrfs file system",
        "`btrfs restore FILE DIR` (package btrfs-progs) copies its files out",
    ),
];

const LVM: &str = "`losetup -f --show FILE` and `vgchange -ay` as root show its volumes as /dev/GROUP/VOLUME";

pub(crate) fn recognise(device: &dyn BlockDevice, start: u64) -> io::Result<Option<Format>> {
    for &(at, bytes, format) in MAGICS {
        let mut found = vec![0; bytes.len()];
        let Some(at) = start.checked_add(at) else { continue };
        if at.saturating_add(bytes.len() as u64) > device.size() {
            continue;
        }
        device.read_at(at, &mut found)?;
        if found == bytes {
            return Ok(Some(format));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn every_format_is_recognised_by_its_magic_number_and_none_in_zeros() {
        for &(at, bytes, format) in MAGICS {
            let mut disk = vec![0; at as usize + bytes.len()];
            disk[at as usize..].copy_from_slice(bytes);
            let found = recognise(&MemoryDevice::from(disk.clone()), 0).unwrap();
            assert_eq!(found, Some(format));
            disk.pop();
            assert_eq!(recognise(&MemoryDevice::from(disk), 0).unwrap(), None, "{format:?} cut short");
        }
        assert_eq!(recognise(&MemoryDevice::new(1 << 20), 0).unwrap(), None);
    }
}
