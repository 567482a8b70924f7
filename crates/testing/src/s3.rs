//! An S3 server that checks signatures: s3s-fs, in this process.

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;

/// The variables with the keys that the server of [`serve_s3`] admits.
pub const S3_KEYS: [(&str, &str); 2] =
    [("AWS_ACCESS_KEY_ID", "someone"), ("AWS_SECRET_ACCESS_KEY", "secret")];

/// Serves the directories of `root` as buckets, until the process ends.
///
/// # Panics
/// Where no port can be had.
pub fn serve_s3(root: &Path) -> SocketAddr {
    serve_s3_at(root, 0)
}

/// As [`serve_s3`], at a port of its own: where one was served before, for instance.
///
/// # Panics
/// Where the port cannot be had.
pub fn serve_s3_at(root: &Path, port: u16) -> SocketAddr {
    let files = s3s_fs::FileSystem::new(root).expect("a directory");
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(S3_KEYS[0].1, S3_KEYS[1].1));
    let service = builder.build();
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a thread");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("a port");
            sender.send(listener.local_addr().expect("an address")).expect("the receiver waits");
            while let Ok((socket, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let _ = Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                });
            }
        })
    });
    receiver.recv().expect("the server has started")
}
