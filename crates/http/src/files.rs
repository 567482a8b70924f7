//! Responses for paths. All but [`Site::at_hand`] may block and runs on reader threads.

use crate::body::{Body, Part, Pieces, Reserved, Source, Unreadable, first_chunk};
use crate::conditional::{State, Validators, Verdict};
use crate::json;
use crate::listing::{self, View};
use crate::log::Log;
use crate::media;
use crate::range::{self, Wanted};
use crate::reply::{self, set};
use crate::site::{Site, WHO};
use crate::target::{Target, encode, form_field};
use dentree_vfs::{Error, FileSystem, FileType, Inode, Result, Vfs, WalkOptions};
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, ETAG,
    HeaderMap, LAST_MODIFIED, RANGE, VARY,
};
use hyper::{Response, StatusCode};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

/// Documents of the image run their scripts in an origin of their own, which may not read this
/// site.
const SANDBOX: &str =
    "sandbox allow-scripts allow-forms allow-popups allow-popups-to-escape-sandbox allow-downloads";

pub(crate) struct Ask {
    pub(crate) head: bool,
    pub(crate) target: Target,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
}

pub(crate) enum Found<F: FileSystem> {
    Reply(Box<Response<Body>>),
    Directory(Arc<Inode<F>>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Page,
    Json,
    Archive,
}

impl Form {
    pub(crate) fn of<F: FileSystem>(site: &Site<F>, ask: &Ask) -> Form {
        if site.archives.is_some() && form_field(&ask.query, "archive").as_deref() == Some(b"tar") {
            return Form::Archive;
        }
        if json::is_wanted(&ask.headers) { Form::Json } else { Form::Page }
    }
}

impl<F: FileSystem> Found<F> {
    fn reply(response: Response<Body>) -> Self {
        Found::Reply(Box::new(response))
    }
}

impl<F: FileSystem> Site<F> {
    /// From memory only. `None`: something must be read.
    pub(crate) fn at_hand(&self, ask: &Ask) -> Option<Response<Body>> {
        let path = ask.target.path();
        let inode = match self.vfs.walk_cached(WHO, self.vfs.root(), &path, WalkOptions::FOLLOW)? {
            Ok(inode) => inode,
            Err(error) => return Some(self.failed(&path, &error)),
        };
        if inode.attr().kind != FileType::Regular {
            return None;
        }
        let content = self.contents.get(&State::of(&inode.attr()))?;
        let room = self.budget.reserve_now(content.len())?;
        Some(self.file(ask, inode, Some(content), room))
    }

    /// The response for a file; a directory is only found.
    pub(crate) fn find(&self, ask: &Ask, room: Reserved) -> Found<F> {
        let path = ask.target.path();
        let inode = match self.vfs.walk(WHO, self.vfs.root(), &path, WalkOptions::FOLLOW) {
            Ok(inode) => inode,
            Err(error) => return Found::reply(self.failed(&path, &error)),
        };
        match inode.attr().kind {
            FileType::Directory if ask.target.directory => Found::Directory(inode),
            FileType::Directory => Found::reply(to_directory(ask)),
            FileType::Regular => Found::reply(self.file(ask, inode, None, room)),
            _ => Found::reply(reply::say(StatusCode::FORBIDDEN, "This is not a regular file.")),
        }
    }

    pub(crate) fn list(&self, ask: &Ask, dir: &Inode<F>, room: Reserved) -> Response<Body> {
        let view = View::of(&ask.query);
        let page = match listing::page(self, &ask.target, dir, &view) {
            Ok(page) => page,
            Err(error) => return self.failed(&ask.target.path(), &error),
        };
        let body = Body::bytes(room.hold(page.into_bytes()));
        let mut response = reply::plain(StatusCode::OK, "text/html; charset=utf-8", body);
        set(&mut response, CONTENT_SECURITY_POLICY, listing::policy());
        set(&mut response, VARY, "Accept");
        if ask.head { without_body(response) } else { response }
    }

    pub(crate) fn json(self: &Arc<Self>, ask: &Ask, dir: Arc<Inode<F>>, room: Reserved) -> Response<Body> {
        let listing = Box::new(json::Listing::new(self.clone(), dir, ask.target.path()));
        let mut response = self.whole(ask, "application/json", listing, room);
        set(&mut response, VARY, "Accept");
        response
    }

    /// A directory's tree. `None`: too many archives are in progress.
    pub(crate) fn archive(&self, ask: &Ask, room: Reserved) -> Option<Response<Body>> {
        const MEDIA: &str = "application/x-tar";
        let mut response = match ask.head {
            true => reply::plain(StatusCode::OK, MEDIA, Body::default()),
            false => self.whole(ask, MEDIA, self.archives.as_ref()?.start(ask.target.path())?, room),
        };
        let name = ask.target.names.last().map_or(self.title.as_bytes(), |name| name);
        set(&mut response, CONTENT_DISPOSITION, &attachment(name));
        Some(response)
    }

    /// A directory in a form other than its page.
    fn whole(&self, ask: &Ask, media: &str, mut pieces: Box<dyn Pieces>, room: Reserved) -> Response<Body> {
        let Ok(first) = pieces.next() else { return reply::unreadable() };
        let body = Body::pieces(room.hold(first.unwrap_or_default()), pieces, self.budget.clone());
        let response = reply::plain(StatusCode::OK, media, body);
        if ask.head { without_body(response) } else { response }
    }

    fn failed(&self, path: &[u8], error: &Error) -> Response<Body> {
        let response = reply::error(error);
        if response.status().is_server_error() {
            self.log.problem(path, error);
        }
        response
    }

    /// The whole content of a regular file may be cached.
    fn file(
        &self,
        ask: &Ask,
        inode: Arc<Inode<F>>,
        content: Option<Bytes>,
        room: Reserved,
    ) -> Response<Body> {
        let size = inode.attr().size;
        let now = SystemTime::now();
        let validators = Validators::new(self.fsid, &State::of(&inode.attr()), now);
        let mut response = Response::new(Body::default());
        match validators.judge(&ask.headers) {
            Verdict::Failed => {
                let sentence = "The file is not what you thought it was.";
                return reply::say(StatusCode::PRECONDITION_FAILED, sentence);
            }
            Verdict::NotModified => *response.status_mut() = StatusCode::NOT_MODIFIED,
            Verdict::Proceed => {
                let source = Arc::new(File {
                    vfs: self.vfs.clone(),
                    inode,
                    content,
                    path: ask.target.path(),
                    log: self.log.clone(),
                });
                let wanted = if ask.head { Wanted::Whole } else { ranges(ask, &validators, size, now) };
                response =
                    self.content(ask, source, wanted, room).unwrap_or_else(|Unreadable| reply::unreadable());
            }
        }
        if response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED {
            set(&mut response, ETAG, &validators.tag);
            set(&mut response, hyper::header::CACHE_CONTROL, "no-cache");
            if let Some(date) = validators.last_modified() {
                set(&mut response, LAST_MODIFIED, &date);
            }
        }
        response
    }

    fn content(
        &self,
        ask: &Ask,
        source: Arc<File<F>>,
        wanted: Wanted,
        room: Reserved,
    ) -> Result<Response<Body>, Unreadable> {
        let size = source.inode.attr().size;
        let (status, ranges) = match wanted {
            Wanted::Unsatisfiable => {
                let mut response =
                    reply::say(StatusCode::RANGE_NOT_SATISFIABLE, "The file ends before this range.");
                set(&mut response, CONTENT_RANGE, &format!("bytes */{size}"));
                return Ok(response);
            }
            Wanted::Whole => (StatusCode::OK, std::iter::once(0..size).collect()),
            Wanted::Parts(ranges) => (StatusCode::PARTIAL_CONTENT, ranges),
        };
        let first = match &source.content {
            _ if ask.head => Bytes::new(),
            // At most a chunk, and cached: see `Contents`.
            Some(content) => content.slice(ranges[0].start as usize..ranges[0].end as usize),
            None => first_chunk(&*source, &ranges[0])?,
        };
        if source.content.is_none() && first.len() as u64 == size {
            self.contents.keep(State::of(&source.inode.attr()), first.clone());
        }
        let media = media_type(ask, &*source, &ranges[0], &first)?;
        let (parts, boundary) = parts(&ranges, &room.hold(first), &media, size);
        let body = Body::of(parts, Some((source, self.budget.clone())));
        let mut response = match &boundary {
            Some(boundary) => {
                reply::plain(status, &format!("multipart/byteranges; boundary={boundary}"), body)
            }
            None => reply::plain(status, &media, body),
        };
        if status == StatusCode::PARTIAL_CONTENT && boundary.is_none() {
            set(&mut response, CONTENT_RANGE, &content_range(&ranges[0], size));
        }
        set(&mut response, ACCEPT_RANGES, "bytes");
        if media::is_active(&media) {
            set(&mut response, CONTENT_SECURITY_POLICY, SANDBOX);
        }
        Ok(if ask.head { without_body(response) } else { response })
    }
}

/// Names a downloaded archive after its directory, with and without RFC 8187.
fn attachment(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name);
    let safe = |c: char| c.is_ascii_alphanumeric() || "-._ ".contains(c);
    let plain: String = name.chars().map(|c| if safe(c) { c } else { '_' }).collect();
    format!("attachment; filename=\"{plain}.tar\"; filename*=UTF-8''{}.tar", encode(name.as_bytes()))
}

/// Adds the slash that relative links of the page need.
fn to_directory(ask: &Ask) -> Response<Body> {
    let mut url = ask.target.directory_url(ask.target.names.len());
    if !ask.query.is_empty() {
        url.push('?');
        url.push_str(&ask.query);
    }
    reply::redirect(&url)
}

/// Headers for HEAD.
fn without_body(mut response: Response<Body>) -> Response<Body> {
    if let Some(len) = response.body().len() {
        set(&mut response, CONTENT_LENGTH, &len.to_string());
    }
    response.map(|_| Body::default())
}

fn ranges(ask: &Ask, validators: &Validators, size: u64, now: SystemTime) -> Wanted {
    let mut headers = ask.headers.get_all(RANGE).iter();
    match (headers.next().and_then(|header| header.to_str().ok()), headers.next()) {
        (Some(header), None) if validators.allow_ranges(&ask.headers, now) => range::wanted(header, size),
        _ => Wanted::Whole,
    }
}

/// By name, else by content, which may have been read already.
fn media_type(
    ask: &Ask,
    source: &dyn Source,
    range: &Range<u64>,
    first: &[u8],
) -> Result<String, Unreadable> {
    if let Some(media) = ask.target.names.last().and_then(|name| media::by_name(name)) {
        return Ok(media);
    }
    let len = source.len().min(media::SAMPLE as u64);
    let mut sample = vec![0; usize::try_from(len).unwrap_or(media::SAMPLE)];
    match first.get(..sample.len()) {
        Some(beginning) if range.start == 0 => sample.copy_from_slice(beginning),
        _ => source.fill(0, &mut sample)?,
    }
    Ok(media::by_content(&sample).to_owned())
}

fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", range.start, range.end - 1)
}

/// `first` begins the first range. Several ranges get a boundary that a file cannot predict (RFC
/// 9110 §14.6).
fn parts(ranges: &[Range<u64>], first: &Bytes, media: &str, size: u64) -> (Vec<Part>, Option<String>) {
    let behind_first = ranges[0].start + first.len() as u64..ranges[0].end;
    let mut stretches = vec![Part::Bytes(first.clone()), Part::File(behind_first)];
    if ranges.len() == 1 {
        return (stretches, None);
    }
    let random = || RandomState::new().hash_one(size);
    let boundary = format!("{:016x}{:016x}", random(), random());
    let head = |range: &Range<u64>| {
        let range = content_range(range, size);
        Part::Bytes(
            format!("\r\n--{boundary}\r\nContent-Type: {media}\r\nContent-Range: {range}\r\n\r\n").into(),
        )
    };
    let mut parts = vec![head(&ranges[0])];
    parts.append(&mut stretches);
    for range in &ranges[1..] {
        parts.push(head(range));
        parts.push(Part::File(range.clone()));
    }
    parts.push(Part::Bytes(format!("\r\n--{boundary}--\r\n").into()));
    (parts, Some(boundary))
}

/// Regular file as the source of a body.
struct File<F: FileSystem> {
    vfs: Arc<Vfs<F>>,
    inode: Arc<Inode<F>>,
    /// Cached content.
    content: Option<Bytes>,
    path: Vec<u8>,
    log: Arc<dyn Log>,
}

impl<F: FileSystem> Source for File<F> {
    fn len(&self) -> u64 {
        self.inode.attr().size
    }

    fn fill(&self, offset: u64, buf: &mut [u8]) -> Result<(), Unreadable> {
        if let Some(content) = &self.content {
            let from =
                usize::try_from(offset).ok().and_then(|offset| content.get(offset..)?.get(..buf.len()));
            return from.map(|from| buf.copy_from_slice(from)).ok_or(Unreadable);
        }
        let error = match self.vfs.read(&self.inode, offset, buf) {
            Ok(len) if len == buf.len() => return Ok(()),
            Ok(_) => Error::Io("the file ended before its size".into()),
            Err(error) => error,
        };
        self.log.problem(&self.path, &error);
        Err(Unreadable)
    }
}
