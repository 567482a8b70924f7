//! Paths in an image, as bytes.

/// `dir/name`; the root is `/`.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    join_into(&mut path, dir, name);
    path
}

pub(crate) fn join_into(out: &mut Vec<u8>, dir: &[u8], name: &[u8]) {
    out.extend_from_slice(dir);
    if dir != b"/" {
        out.push(b'/');
    }
    out.extend_from_slice(name);
}
