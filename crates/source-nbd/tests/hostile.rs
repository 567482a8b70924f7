//! Test servers that disconnect, stay silent or violate the protocol.

use dentree_blockdev::{Access, BlockDevice, MemoryDevice, MeteredDevice};
use dentree_source_nbd::{Address, Error, NbdDevice, Patience};
use dentree_testing::{NbdExport, nbd_greet};
use proptest::prelude::*;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const SIZE: u64 = 1 << 20;

/// Runs a script for each connection.
struct Scripted {
    dir: TempDir,
}

impl Scripted {
    fn new(mut script: impl FnMut(usize, UnixStream) -> io::Result<()> + Send + 'static) -> Scripted {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                // Errors: the client left.
                let _ = script(number, stream.unwrap());
            }
        });
        Scripted { dir }
    }

    fn open(&self, access: Access, patience: Patience) -> Result<NbdDevice, Error> {
        let socket = self.dir.path().join("s");
        let address: Address = format!("nbd+unix:///?socket={}", socket.display()).parse().unwrap();
        NbdDevice::open(&address, access, patience)
    }
}

/// Next request: command, cookie, length.
fn request(stream: &mut UnixStream) -> io::Result<(u8, [u8; 8], usize)> {
    let mut header = [0; 28];
    stream.read_exact(&mut header)?;
    let len = u32::from_be_bytes(header[24..].try_into().unwrap()) as usize;
    if header[7] == 1 {
        stream.read_exact(&mut vec![0; len])?;
    }
    Ok((header[7], header[8..16].try_into().unwrap(), len))
}

fn chunk(flags: u16, kind: u16, cookie: [u8; 8], payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&0x668e_33efu32.to_be_bytes()[..], &flags.to_be_bytes(), &kind.to_be_bytes(), &cookie, &len, payload]
        .concat()
}

/// Reads return sevens; other requests succeed. Until the client leaves.
fn serve(stream: &mut UnixStream) -> io::Result<()> {
    loop {
        let (command, cookie, len) = request(stream)?;
        if command == 0 {
            stream.write_all(&chunk(0, 1, cookie, &[vec![0; 8], vec![7; len]].concat()))?;
        }
        stream.write_all(&chunk(1, 0, cookie, &[]))?;
    }
}

/// Opens an export with little patience: on a busy machine the greeting may take longer.
fn open_at_last(server: &Scripted, access: Access, patience: Patience) -> NbdDevice {
    let mut opened = (0..100).map(|_| server.open(access, patience));
    opened.find_map(Result::ok).expect("one greeting of a hundred is in time")
}

/// For silent servers.
fn short() -> Patience {
    Patience { answer: Duration::from_millis(50), absence: Duration::from_millis(50) }
}

#[test]
fn half_an_answer_is_asked_for_again() {
    for sent in [0, 3, 19, 20, 27, 28, 30, 28 + 99] {
        let server = Scripted::new(move |number, mut stream| {
            nbd_greet(&mut stream, SIZE)?;
            if number > 0 {
                return serve(&mut stream);
            }
            let (_, cookie, _) = request(&mut stream)?;
            stream.write_all(&chunk(0, 1, cookie, &[vec![0; 8], vec![9; 100]].concat())[..sent])
        });
        let device = server.open(Access::ReadOnly, Patience::default()).unwrap();
        let mut found = [0; 100];
        device.read_at(0, &mut found).unwrap();
        assert_eq!(found, [7; 100], "after {sent} bytes");
    }
}

#[test]
fn a_server_that_is_silent_is_left_for_another_connection() {
    let server = Scripted::new(|number, mut stream| {
        nbd_greet(&mut stream, SIZE)?;
        if number > 0 { serve(&mut stream) } else { stream.read_to_end(&mut Vec::new()).map(drop) }
    });
    let patience = Patience { answer: Duration::from_millis(50), ..Patience::default() };
    let device = open_at_last(&server, Access::ReadOnly, patience);
    let mut found = [0; 10];
    device.read_at(0, &mut found).unwrap();
    assert_eq!(found, [7; 10]);
}

#[test]
fn a_write_that_is_not_answered_is_not_made_again() {
    let server = Scripted::new(|_, mut stream| {
        nbd_greet(&mut stream, SIZE)?;
        stream.read_to_end(&mut Vec::new()).map(drop)
    });
    let device = open_at_last(&server, Access::ReadWrite, short());
    let error = device.write_at(512, &[1; 512]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("may still do it"), "{error}");
    assert!(device.flush().is_err(), "and the device is not used any more");
}

#[test]
fn a_request_that_ends_every_connection_fails_after_some() {
    let server = Scripted::new(|_, mut stream| {
        nbd_greet(&mut stream, SIZE)?;
        request(&mut stream).map(drop)
    });
    let device = server.open(Access::ReadOnly, Patience::default()).unwrap();
    let error = device.read_at(0, &mut [0; 10]).unwrap_err();
    assert!(error.to_string().contains("read 10 bytes at 0"), "{error}");
}

#[test]
fn a_server_that_shuts_down_is_waited_for() {
    let server = Scripted::new(|number, mut stream| {
        nbd_greet(&mut stream, SIZE)?;
        if number > 2 {
            return serve(&mut stream);
        }
        let (_, cookie, _) = request(&mut stream)?;
        stream.write_all(&chunk(1, 1 << 15 | 1, cookie, &[0, 0, 0, 108, 0, 0]))
    });
    let device = server.open(Access::ReadWrite, Patience::default()).unwrap();
    device.write_at(0, &[1; 10]).unwrap();
    device.flush().unwrap();
}

#[test]
fn what_breaks_the_protocol_ends_the_device_with_its_reason() {
    type Answer = fn([u8; 8]) -> Vec<u8>;
    let answers: [(&str, Answer); 9] = [
        ("no request", |_| chunk(1, 0, [9; 8], &[])),
        ("chunk of kind 5", |cookie| chunk(1, 5, cookie, &[0; 12])),
        ("chunk of kind 1 with 8 bytes", |cookie| chunk(0, 1, cookie, &[0; 8])),
        ("which were not asked for", |cookie| chunk(0, 1, cookie, &[0; 109])),
        ("which were not asked for", |cookie| chunk(0, 1, cookie, &[255; 20])),
        ("which were not asked for", |cookie| {
            chunk(0, 2, cookie, &[0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255])
        }),
        ("0 of 100 bytes", |cookie| chunk(1, 0, cookie, &[])),
        ("50 of 100 bytes", |cookie| chunk(1, 2, cookie, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 50])),
        ("begins with 0x48545450", |_| b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
    ];
    for (problem, answer) in answers {
        let server = Scripted::new(move |_, mut stream| {
            nbd_greet(&mut stream, SIZE)?;
            let (_, cookie, _) = request(&mut stream)?;
            stream.write_all(&answer(cookie))?;
            serve(&mut stream)
        });
        let device = server.open(Access::ReadOnly, Patience::default()).unwrap();
        let error = device.read_at(0, &mut [0; 100]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert!(error.to_string().contains(problem), "{problem}: {error}");
        assert_eq!(device.read_at(0, &mut [0; 1]).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}

#[test]
fn more_than_the_log_holds_is_flushed_in_between() {
    let disk = Arc::new(MeteredDevice::new(Arc::new(MemoryDevice::new(100 << 20))));
    let export = NbdExport::new(disk.clone(), Box::new(|| None));
    let address = export.address().parse().unwrap();
    let device = NbdDevice::open(&address, Access::ReadWrite, Patience::default()).unwrap();
    let megabyte = vec![1; 1 << 20];
    for at in 0..64 {
        device.write_at(at << 20, &megabyte).unwrap();
    }
    assert_eq!(disk.counts().flushes, 0);
    device.write_at(64 << 20, &megabyte).unwrap();
    assert_eq!(disk.counts().flushes, 1);
    device.flush().unwrap();
    assert_eq!((disk.counts().flushes, disk.counts().total_writes()), (2, 65));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Corrupted greetings are an error or an export.
    #[test]
    fn a_hostile_greeting_is_an_error(bytes in greeting(), at in 0..200usize, change in any::<u8>(), random in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = bytes;
        let len = bytes.len();
        bytes[at % len] = change;
        bytes.truncate((at * 7) % len + 1);
        bytes.extend(random);
        let server = Scripted::new(move |_, mut stream| {
            stream.write_all(&bytes)?;
            stream.shutdown(std::net::Shutdown::Write)?;
            stream.read_to_end(&mut Vec::new()).map(drop)
        });
        if let Ok(device) = server.open(Access::ReadOnly, short()) {
            let _ = device.read_at(0, &mut [0; 10]);
        }
    }

    /// Random replies end a read with an error or its bytes.
    #[test]
    fn hostile_replies_end_each_read(replies in prop::collection::vec(reply(), 1..8)) {
        let server = Scripted::new(move |_, mut stream| {
            nbd_greet(&mut stream, SIZE)?;
            let (_, cookie, _) = request(&mut stream)?;
            for (flags, kind, payload, len) in &replies {
                let mut bytes = chunk(*flags, *kind, cookie, payload);
                if let Some(len) = len {
                    bytes[16..20].copy_from_slice(&len.to_be_bytes());
                }
                stream.write_all(&bytes)?;
            }
            stream.shutdown(std::net::Shutdown::Write)
        });
        let device = open_at_last(&server, Access::ReadOnly, short());
        let _ = device.read_at(64, &mut [0; 100]);
    }
}

/// All that a server sends before requests.
fn greeting() -> impl Strategy<Value = Vec<u8>> {
    let reply = |option: u32, kind: u32, data: &[u8]| {
        let len = (data.len() as u32).to_be_bytes();
        [&0x0003_e889_0455_65a9u64.to_be_bytes()[..], &option.to_be_bytes(), &kind.to_be_bytes(), &len, data]
            .concat()
    };
    let export = [&[0, 0][..], &SIZE.to_be_bytes(), &[0, 5]].concat();
    let sizes =
        [&[0, 3][..], &512u32.to_be_bytes(), &4096u32.to_be_bytes(), &65536u32.to_be_bytes()].concat();
    let parts: Vec<Vec<u8>> = vec![
        b"NBDMAGICIHAVEOPT\0\x03".to_vec(),
        reply(8, 1, &[]),
        reply(7, 3, &export),
        reply(7, 3, &sizes),
        reply(7, 1, &[]),
    ];
    Just(parts.concat())
}

/// Flags, kind and payload of a chunk, and perhaps a wrong length.
fn reply() -> impl Strategy<Value = (u16, u16, Vec<u8>, Option<u32>)> {
    let kind = prop_oneof![Just(0), Just(1), Just(2), Just(5), Just(0x8001), Just(0x8002), any::<u16>()];
    let at = prop_oneof![3 => 60..170u64, 1 => any::<u64>()];
    let payload = (at, prop::collection::vec(any::<u8>(), 0..120));
    let payload = payload.prop_map(|(at, rest)| [&at.to_be_bytes()[..], &rest].concat());
    (0..3u16, kind, payload, prop::option::weighted(0.2, any::<u32>()))
}
