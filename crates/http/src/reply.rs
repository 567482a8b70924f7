//! Errors and redirections.

use crate::body::Body;
use dentree_vfs::Error;
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};

/// Must be revalidated: the same address may serve another image tomorrow.
pub(crate) fn plain(status: StatusCode, media: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    set(&mut response, CONTENT_TYPE, media);
    set(&mut response, X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(&mut response, CACHE_CONTROL, "no-cache");
    response
}

/// Omits a value that no header can hold.
pub(crate) fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// With a sentence as body.
pub(crate) fn say(status: StatusCode, sentence: &str) -> Response<Body> {
    let body = Body::bytes(format!("{status}\n{sentence}\n"));
    let mut response = plain(status, "text/plain; charset=utf-8", body);
    // Required by RFC 9110 §15.5.6.
    if status == StatusCode::METHOD_NOT_ALLOWED {
        set(&mut response, ALLOW, "GET, HEAD");
    }
    response
}

pub(crate) fn unauthorized(realm: &str) -> Response<Body> {
    let realm = realm.replace(|c: char| matches!(c, '"' | '\\') || !matches!(c, ' '..='~'), "_");
    let mut response = say(StatusCode::UNAUTHORIZED, "This needs a name and a password.");
    set(&mut response, WWW_AUTHENTICATE, &format!("Basic realm=\"{realm}\", charset=\"UTF-8\""));
    response
}

/// 301.
pub(crate) fn redirect(to: &str) -> Response<Body> {
    let mut response = say(StatusCode::MOVED_PERMANENTLY, to);
    set(&mut response, LOCATION, to);
    response
}

/// Reveals nothing about the image's structure.
pub(crate) fn error(error: &Error) -> Response<Body> {
    let (status, sentence) = match error {
        Error::NotFound | Error::NotADirectory | Error::NameTooLong => {
            (StatusCode::NOT_FOUND, "There is nothing of this name.")
        }
        Error::Loop => (StatusCode::NOT_FOUND, "The symbolic links on this way lead nowhere."),
        Error::AccessDenied | Error::NotPermitted | Error::Escapes => {
            (StatusCode::FORBIDDEN, "This may not be read.")
        }
        Error::Encrypted => (StatusCode::FORBIDDEN, "This is encrypted, and no key is here."),
        Error::Unsupported(_) => {
            (StatusCode::NOT_IMPLEMENTED, "This is stored in a way that is not supported yet.")
        }
        _ => return unreadable(),
    };
    say(status, sentence)
}

/// 500: corruption or a failing device.
pub(crate) fn unreadable() -> Response<Body> {
    let sentence = "This could not be read; the server's own messages tell why.";
    say(StatusCode::INTERNAL_SERVER_ERROR, sentence)
}
