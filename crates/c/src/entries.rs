//! Names: of one directory, and of everything below it.

use crate::error::{Failure, returns};
use crate::image::CALLER;
use crate::node::dentree_node;
use crate::pointer::handle;
use crate::stat::dentree_stat;
use dentree_vfs::{Error, FileType, Ino};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_void};
use std::ops::ControlFlow;
use std::ptr;

/// A name. It is valid until the function that is called with it returns.
#[repr(C)]
pub struct dentree_entry {
    /// Of `dentree_readdir` the name, of `dentree_find` the path from the directory on. A zero is
    /// behind it.
    pub path: *const c_char,
    /// Its length, without the zero.
    pub path_len: usize,
    pub ino: u64,
    /// `f`, `d`, `l`, `c`, `b`, `p` or `s`, as find(1) has it with `-type`; 0 where the directory
    /// does not say.
    pub kind: c_char,
    /// Of `dentree_find` the attributes, of `dentree_readdir` null.
    pub stat: *const dentree_stat,
}

/// Called for every name, with the pointer that the caller gave. 0: go on; positive: go on, and
/// leave out what is below this directory; negative: end, and return this.
pub type dentree_each =
    Option<unsafe extern "C" fn(context: *mut c_void, entry: *const dentree_entry) -> c_int>;

/// Calls `each` for every name in a directory but `.` and `..`. Returns 0, a negative errno, or
/// what `each` returned to end it. Of a damaged directory all names that can be read are given, and
/// then the call fails with `-EUCLEAN`.
///
/// # Safety
/// `node` is valid, and `each` can be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dentree_readdir(
    node: *const dentree_node,
    each: dentree_each,
    context: *mut c_void,
) -> c_int {
    returns(|| {
        // SAFETY: as this function's caller says.
        let node = unsafe { handle(node, "node") }?;
        let mut each = called(each, context)?;
        let mut names = Names::of(node);
        for Name { path, ino, kind } in names.list(b"", node.inode.ino())? {
            let answer = each(&path, ino, kind, None);
            if answer < 0 {
                return Ok(answer);
            }
        }
        names.end()
    })
}

/// Calls `each` for everything below a directory, with its attributes, a directory before what is
/// in it. Returns as `dentree_readdir` does; what is damaged is left out.
///
/// # Safety
/// `node` is valid, and `each` can be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dentree_find(
    node: *const dentree_node,
    each: dentree_each,
    context: *mut c_void,
) -> c_int {
    returns(|| {
        // SAFETY: as this function's caller says.
        let node = unsafe { handle(node, "node") }?;
        let mut each = called(each, context)?;
        let mut names = Names::of(node);
        let mut left = vec![(Vec::new(), node.inode.ino())];
        // A directory that several names link to, which only damage makes, is entered once.
        let mut entered = HashSet::new();
        while let Some((path, dir)) = left.pop() {
            if !entered.insert(dir) {
                continue;
            }
            let listed = match names.list(&path, dir) {
                // The top is what the caller named.
                Err(failure) if path.is_empty() => return Err(failure),
                listed => listed.unwrap_or_default(),
            };
            node.fs.prefetch_inodes(listed.iter().map(|name| name.ino));
            let first = left.len();
            for Name { path, ino, .. } in listed {
                let attr = match node.fs.attr(ino) {
                    Ok(attr) => attr,
                    Err(error) => {
                        names.damaged(&path, &error);
                        continue;
                    }
                };
                let answer = each(&path, ino, Some(attr.kind), Some(&dentree_stat::from(&attr)));
                if answer < 0 {
                    return Ok(answer);
                }
                if answer == 0 && attr.is_dir() {
                    left.push((path, ino));
                }
            }
            left[first..].reverse();
        }
        names.end()
    })
}

type Each = dyn FnMut(&[u8], Ino, Option<FileType>, Option<&dentree_stat>) -> c_int;

/// A caller's function as one of ours.
fn called(each: dentree_each, context: *mut c_void) -> Result<Box<Each>, Failure> {
    let each = each.ok_or_else(|| Failure::new(Errno::FAULT, "each is a null pointer"))?;
    Ok(Box::new(move |path, ino, kind, stat| {
        let terminated = [path, b"\0"].concat();
        let entry = dentree_entry {
            path: terminated.as_ptr().cast(),
            path_len: path.len(),
            ino: ino.0,
            kind: kind.map_or(0, |kind| kind.letter() as c_char),
            stat: stat.map_or(ptr::null(), ptr::from_ref),
        };
        // SAFETY: the caller of `dentree_readdir` or `dentree_find`, which has not returned yet,
        // says that it can be called. The entry and what it points to live until it returns.
        unsafe { each(context, &entry) }
    }))
}

struct Name {
    path: Vec<u8>,
    ino: Ino,
    kind: Option<FileType>,
}

/// Lists directories, and remembers the first damage.
struct Names<'n> {
    node: &'n dentree_node,
    damage: Option<Failure>,
}

impl<'n> Names<'n> {
    fn of(node: &'n dentree_node) -> Self {
        Names { node, damage: None }
    }

    /// The names in a directory. They are listed before any is given to the caller: a walk while a
    /// listing is in progress would wait for it.
    fn list(&mut self, path: &[u8], dir: Ino) -> Result<Vec<Name>, Failure> {
        let fs = &self.node.fs;
        let mut names = Vec::new();
        let mut damage = None;
        let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
        let listed = fs.inode(dir).and_then(|inode| {
            fs.readdir_past_damage(
                CALLER,
                &inode,
                &mut |entry| {
                    let path = [path, slash, entry.name].concat();
                    names.push(Name { path, ino: entry.ino, kind: entry.kind });
                    ControlFlow::Continue(())
                },
                &mut |error| damage = Some(error),
            )
        });
        if let Some(error) = damage {
            self.damaged(path, &error);
        }
        if let Err(error) = listed {
            self.damaged(path, &error);
            return Err(self.node.failed(&error));
        }
        Ok(names)
    }

    fn damaged(&mut self, path: &[u8], error: &Error) {
        self.damage.get_or_insert_with(|| Failure::at(path, error));
    }

    /// Success, unless something was damaged.
    fn end(self) -> Result<c_int, Failure> {
        self.damage.map_or(Ok(0), Err)
    }
}
