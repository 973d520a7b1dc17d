//! A server that says anything, and a lane that believes nothing.

use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::thread;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::*;
use crate::client::arrival::{Arrivals, ArrivedBatch, way};
use crate::client::batch::RemoteBatch;
use crate::client::fields::RemoteColumns;
use crate::client::fields::tests::{item, noted, schema};
use crate::client::runtime::ClientRuntime;
use crate::message::SchemaMessage;

const WINDOW: usize = 3;

/// Longer than anything here takes.
const HUNG: Duration = Duration::from_secs(60);

/// A lane's connection, and the server at its other end, which is the test.
struct Fake {
    server: StdStream,
    parts: Parts,
    arrivals: Arrivals,
    columns: Option<Arc<RemoteColumns>>,
    to_server: UnboundedSender<FromClient>,
    dialer: Arc<Dialer>,
    /// Its drop waits for the connection, which ends when nobody can say anything any more.
    _runtime: ClientRuntime,
}

impl Fake {
    fn begin() -> Self {
        let runtime = ClientRuntime::start().unwrap();
        let url = "shared:///nowhere".to_owned();
        let dialer = Dialer::new(String::new(), url, Some("secret"), None, None, runtime.tasks());
        let dialer = Arc::new(dialer.unwrap());
        let (client, server) = StdStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        server.set_read_timeout(Some(HUNG)).unwrap();
        let (to_server, said) = unbounded_channel();
        let (to_lane, arrivals) = way(WINDOW);
        let saying = Saying { said, releases: to_server.downgrade() };
        let of_task = dialer.clone();
        runtime.spawn_awaited(async move {
            let socket = UnixStream::from_std(client).unwrap();
            let (ticket, token) = ("ticket".to_owned(), of_task.token_text().map(str::to_owned));
            let hello = Hello { ticket, token, window: Some(WINDOW) };
            converse(&of_task, &socket, &hello, saying, to_lane).await;
        });
        let parts = Parts::new(SERVER_BYTES_MAX);
        let mut fake = Fake { server, parts, arrivals, columns: None, to_server, dialer, _runtime: runtime };
        let mut magic = MAGIC.map(|_| 0);
        fake.server.read_exact(&mut magic).unwrap();
        let Hello { ticket, token, window } = fake.hear().unwrap();
        assert_eq!((magic, &*ticket, token.as_deref(), window), (MAGIC, "ticket", Some("secret"), Some(3)));
        fake
    }

    /// With the schema said.
    fn with_schema() -> Self {
        let fake = Self::begin();
        let schema = SchemaMessage::of(&all_kinds()).alone;
        fake.say(&FromServer::Schema(BASE64.encode(schema)), None);
        fake
    }

    fn send(&self, bytes: &[u8], file: Option<&OwnedFd>) {
        let files = file.map(|file| file.as_fd());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if files.is_some() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files.as_slice())));
        }
        let sent = sendmsg(&self.server, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        assert_eq!(sent.unwrap(), bytes.len());
    }

    fn say(&self, message: &FromServer, file: Option<&OwnedFd>) {
        self.send(&framed(message), file);
    }

    fn tell(&self, told: LocalBatch, file: Option<&OwnedFd>) {
        self.say(&FromServer::Batch(Box::new(told)), file);
    }

    /// What the client says next, or `None` if it has gone.
    fn hear<M: for<'de> Deserialize<'de>>(&mut self) -> Option<M> {
        let mut buffer = [0; 100];
        loop {
            if let Some(message) = self.parts.next().unwrap() {
                return Some(message);
            }
            match self.server.read(&mut buffer) {
                Ok(0) => return None,
                Ok(bytes) => self.parts.push(&buffer[..bytes]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("the client says nothing: {error}"),
            }
        }
    }

    /// What the lane gets next.
    fn next(&mut self) -> Result<Option<RemoteBatch>, ClientError> {
        let lost = || self.dialer.cut_off();
        let malformed = |found| self.dialer.malformed(found);
        let columns = match &self.columns {
            Some(columns) => columns.clone(),
            None => {
                let Some(first) = self.arrivals.next(lost)? else { return Ok(None) };
                self.columns.insert(Arc::new(first.columns().map_err(malformed)?)).clone()
            }
        };
        let Some(arrival) = self.arrivals.next(lost)? else { return Ok(None) };
        match arrival.batch(&columns).map_err(malformed)? {
            ArrivedBatch::Received(batch) => Ok(Some(batch)),
            ArrivedBatch::Scattered(batch) => panic!("{batch:?}"),
        }
    }
}

fn all_kinds() -> arrow_schema::Schema {
    let image = DataType::FixedSizeList(item(DataType::UInt8), 6);
    let words = DataType::FixedSizeList(item(DataType::Int32), 2);
    let tokens = DataType::LargeList(item(DataType::Int64));
    schema(vec![
        noted("image", image, &json!({"dtype": "u8", "kind": "fixed", "shape": [2, 3], "layout": "nchw"})),
        noted("words", words, &json!({"dtype": "i32", "kind": "padded", "shape": [2], "max": 2})),
        Field::new("words.lengths", DataType::Int64, false),
        noted("tokens", tokens, &json!({"dtype": "i64", "kind": "ragged", "shape": [], "max": 9})),
        Field::new("percolator.epoch", DataType::UInt64, false),
    ])
}

/// Where the arrays of three rows are, and at the end offsets that cannot be.
const PLACES: [(usize, usize); 5] = [(0, 18), (64, 24), (128, 24), (192, 24), (256, 32)];
const OUT_OF_ORDER: (usize, usize) = (320, 32);
const TOO_FAR: (usize, usize) = (384, 32);
const NEGATIVE: (usize, usize) = (448, 32);
const REGION_BYTES: usize = 480;

fn bytes() -> Vec<u8> {
    let mut bytes = vec![0; REGION_BYTES];
    let mut put = |(at, length): (usize, usize), values: &[u8]| {
        bytes[at..at + length].copy_from_slice(values);
    };
    let whole = |values: &[i64]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    put(PLACES[0], &(0..18).collect::<Vec<u8>>());
    put(PLACES[1], &(0..6_i32).flat_map(i32::to_le_bytes).collect::<Vec<u8>>());
    put(PLACES[2], &whole(&[2, 1, 0]));
    put(PLACES[3], &whole(&[5, 6, 7]));
    put(PLACES[4], &whole(&[0, 2, 2, 3]));
    put(OUT_OF_ORDER, &whole(&[0, 2, 1, 3]));
    put(TOO_FAR, &whole(&[0, 1, 2, 4]));
    put(NEGATIVE, &whole(&[-1, 1, 2, 3]));
    bytes
}

/// Memory with these bytes, and these seals.
fn memory(bytes: &[u8], seals: SealFlags) -> OwnedFd {
    let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
    let mut file = File::from(file.unwrap());
    file.write_all(bytes).unwrap();
    rustix::fs::fcntl_add_seals(&file, seals).unwrap();
    file.into()
}

fn sealed() -> OwnedFd {
    memory(&bytes(), SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE)
}

fn told(number: u64, region: u64, is_new: bool) -> LocalBatch {
    let ticket = format!(".4-{number}.mac");
    let (epoch, step) = (Some(4), Some(number));
    let note = BatchNote { number, epoch, step, is_last: false, records: 2, rows: 3, missed: 0, ticket };
    let (arrays, columns) = (PLACES.to_vec(), vec![vec![4, 4, 0]]);
    LocalBatch { note, region, region_bytes: REGION_BYTES, is_new, gone: Vec::new(), arrays, columns }
}

#[test]
fn batches_are_read_where_they_are() {
    let mut fake = Fake::with_schema();
    fake.tell(told(0, 7, true), Some(&sealed()));
    fake.tell(told(1, 7, false), None);
    let (first, second) = (fake.next().unwrap().unwrap(), fake.next().unwrap().unwrap());
    for batch in [&first, &second] {
        assert_eq!(batch.get::<u8>("image").unwrap(), (0..18).collect::<Vec<u8>>());
        assert_eq!(batch.get::<i32>("words").unwrap(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(batch.get::<i64>("words.lengths").unwrap(), [2, 1, 0]);
        assert_eq!(batch.ragged::<i64>("tokens").unwrap(), (&[0, 2, 2, 3][..], &[5, 6, 7][..]));
        assert_eq!((batch.epochs(), batch.positions()), (Some(&[4, 4, 0][..]), None));
        assert_eq!((batch.records(), batch.rows(), batch.epoch()), (2, 3, Some(4)));
    }
    let address = |batch: &RemoteBatch, name: &str| batch.bytes(name).unwrap().as_ptr().addr();
    assert_eq!(address(&first, "image"), address(&second, "image"));
    assert_eq!(address(&first, "tokens") - address(&first, "image"), 192);
    assert_eq!((address(&first, "image") % 4096, second.number()), (0, 1));
}

#[test]
fn the_last_view_releases_a_batch_on_any_thread() {
    let mut fake = Fake::with_schema();
    for number in 0..3 {
        fake.tell(told(number, 0, number == 0), (number == 0).then(sealed).as_ref());
    }
    let first = fake.next().unwrap().unwrap();
    let view = first.record_batch().column(3).clone();
    drop(first);
    // Had it been released, that would be said first.
    fake.to_server.send(FromClient::Acknowledged(0)).unwrap();
    assert_eq!(fake.hear(), Some(FromClient::Acknowledged(0)));
    thread::spawn(move || drop(view)).join().unwrap();
    assert_eq!(fake.hear(), Some(FromClient::Released(0)));
    drop(fake.next().unwrap().unwrap());
    assert_eq!(fake.hear(), Some(FromClient::Released(1)));
    // One that nobody looks at is released, too.
    drop(fake.arrivals.next(|| fake.dialer.cut_off()).unwrap().unwrap());
    assert_eq!(fake.hear(), Some(FromClient::Released(2)));
    // The connection ends with the lane.
    let Fake { to_server, mut server, _runtime, .. } = fake;
    drop(to_server);
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
}

#[test]
fn a_view_outlives_its_lane_and_its_server() {
    let mut fake = Fake::with_schema();
    fake.tell(told(0, 0, true), Some(&sealed()));
    let batch = fake.next().unwrap().unwrap();
    let view: RecordBatch = batch.record_batch().clone();
    drop(batch);
    drop(fake);
    assert_eq!(view.column(0).to_data().child_data()[0].buffers()[0].as_slice(), &bytes()[..18]);
    // Nobody is there to be told.
    drop(view);
}

#[test]
fn it_does_not_matter_where_a_message_is_cut() {
    let mut fake = Fake::begin();
    let schema = FromServer::Schema(BASE64.encode(SchemaMessage::of(&all_kinds()).alone));
    let batch = FromServer::Batch(Box::new(told(0, 0, true)));
    for (message, file) in [(&schema, None), (&batch, Some(sealed()))] {
        let mut file = file.as_ref();
        for byte in framed(message) {
            fake.send(&[byte], file.take());
        }
    }
    assert_eq!(fake.next().unwrap().unwrap().get::<i64>("words.lengths").unwrap(), [2, 1, 0]);
    // And one that ends early is none.
    let next = framed(&FromServer::Batch(Box::new(told(1, 0, false))));
    fake.send(&next[..next.len() - 1], None);
    fake.server.shutdown(std::net::Shutdown::Both).unwrap();
    let error = fake.next().unwrap_err();
    assert!(matches!(error, ClientError::CutOff { .. }) && error.may_pass(), "{error}");
}

#[test]
fn an_end_is_told_with_its_words_after_all_that_came() {
    let mut fake = Fake::with_schema();
    fake.tell(told(0, 0, true), Some(&sealed()));
    fake.say(&FromServer::End(None), None);
    let batch = fake.next().unwrap().unwrap();
    assert!(fake.next().unwrap().is_none());
    // What is acknowledged and released afterwards is said as well.
    fake.to_server.send(FromClient::Acknowledged(0)).unwrap();
    drop(batch);
    assert_eq!(fake.hear(), Some(FromClient::Acknowledged(0)));
    assert_eq!(fake.hear(), Some(FromClient::Released(0)));

    for (code, may_pass) in [(14, true), (4, true), (15, false)] {
        let mut fake = Fake::with_schema();
        fake.say(&FromServer::End(Some((code, "its words".to_owned()))), None);
        fake.server.shutdown(std::net::Shutdown::Both).unwrap();
        // The client may say what it likes.
        let _ = fake.to_server.send(FromClient::Acknowledged(0));
        let error = fake.next().unwrap_err();
        let ClientError::Refused { status, .. } = &error else { panic!("{error:?}") };
        assert_eq!((status.code.number(), &*status.message), (code, "its words"));
        assert_eq!(error.may_pass(), may_pass);
    }
    let mut fake = Fake::begin();
    fake.say(&FromServer::End(Some((16, "its words".to_owned()))), None);
    assert!(matches!(fake.next(), Err(ClientError::Token { message, .. }) if message == "its words"));
    let mut fake = Fake::begin();
    fake.say(&FromServer::End(None), None);
    assert!(fake.next().unwrap().is_none(), "a stream of which all was taken has no schema");
}

/// What is said of a stream's first batch that is changed like this, in this memory.
fn refused(file: Option<&OwnedFd>, change: impl FnOnce(&mut LocalBatch)) -> String {
    let mut fake = Fake::with_schema();
    let mut batch = told(0, 0, true);
    change(&mut batch);
    fake.tell(batch, file);
    said(fake.next().unwrap_err())
}

fn said(error: ClientError) -> String {
    assert!(!error.may_pass());
    match error {
        ClientError::Malformed { found, .. } => found,
        error => panic!("{error:?}"),
    }
}

#[test]
fn memory_that_is_not_what_a_server_shares_is_refused() {
    let shorter = "memory that may become shorter while it is read";
    for seals in [SealFlags::empty(), SealFlags::GROW | SealFlags::FUTURE_WRITE] {
        assert_eq!(refused(Some(&memory(&bytes(), seals)), |_| {}), shorter);
    }
    let on_disk = OwnedFd::from(tempfile::tempfile().unwrap());
    assert_eq!(refused(Some(&on_disk), |_| {}), shorter);
    assert_eq!(
        refused(Some(&sealed()), |batch| batch.region_bytes = 481),
        "a region of 481 bytes in memory of 480"
    );
    assert!(refused(Some(&sealed()), |batch| batch.region_bytes = 0).starts_with("a region of 0 bytes"));
    assert_eq!(refused(None, |_| {}), "the region 0 without its descriptor");
    let not_new = |batch: &mut LocalBatch| batch.is_new = false;
    assert_eq!(refused(None, not_new), "a batch in the region 0, which did not come");

    let second = |second: LocalBatch, file: Option<&OwnedFd>| {
        let mut fake = Fake::with_schema();
        fake.tell(told(0, 0, true), Some(&sealed()));
        let _batch = fake.next().unwrap().unwrap();
        fake.tell(second, file);
        said(fake.next().unwrap_err())
    };
    assert_eq!(second(told(1, 0, true), Some(&sealed())), "the region 0 twice");
    let other = LocalBatch { region_bytes: 470, ..told(1, 0, false) };
    assert_eq!(second(other, None), "a region of 470 bytes, which had 480 before");
    let gone = LocalBatch { gone: vec![0], ..told(1, 0, false) };
    assert_eq!(second(gone, None), "a batch in the region 0, which did not come");

    let mut fake = Fake::with_schema();
    for byte in [9, 0] {
        fake.send(&[byte], Some(&sealed()));
    }
    assert_eq!(said(fake.next().unwrap_err()), "2 descriptors that no batch is in");
}

#[test]
fn arrays_that_cannot_be_are_refused() {
    type Spoil = fn(&mut LocalBatch);
    let cases: &[(&str, Spoil)] = &[
        ("an array of 18 bytes at 463 of a region of 480", |it| it.arrays[0] = (463, 18)),
        ("an array of 18 bytes at 18446744073709551615 of", |it| it.arrays[0] = (usize::MAX, 18)),
        ("an array of 18446744073709551615 bytes at 1 of", |it| it.arrays[0] = (1, usize::MAX)),
        ("3 rows of 6 elements of image in 17", |it| it.arrays[0] = (0, 17)),
        ("3 rows of 2 elements of words in 5", |it| it.arrays[1] = (64, 20)),
        ("where values of 4 should be", |it| it.arrays[1] = (65, 24)),
        ("where values of 4 should be", |it| it.arrays[1] = (64, 23)),
        ("columns that are none", |it| it.arrays[2] = (128, 16)),
        ("Max offset of 4 exceeds length of values 3", |it| it.arrays[4] = TOO_FAR),
        ("Max offset of 3 exceeds length of values 2", |it| it.arrays[3] = (192, 16)),
        ("4 offsets of 3 rows, which must follow", |it| it.arrays[4] = OUT_OF_ORDER),
        ("4 offsets of 3 rows, which must follow", |it| it.arrays[4] = NEGATIVE),
        ("3 offsets of 3 rows", |it| it.arrays[4] = (256, 24)),
        ("0 offsets of 3 rows", |it| it.arrays[4] = (0, 0)),
        ("the batch lacks an array of tokens", |it| it.arrays.truncate(4)),
        ("the batch lacks an array of image", |it| it.arrays.clear()),
        ("more of them than its schema", |it| it.arrays.push((0, 1))),
        ("more of them than its schema", |it| it.columns.push(vec![1, 2, 3])),
        ("\"percolator.epoch\" is missing", |it| it.columns.clear()),
        ("columns that are none", |it| it.columns[0].truncate(2)),
        ("a batch of 4 records in 3 rows", |it| it.note.records = 4),
        ("rows in 480 bytes", |it| it.note.rows = usize::MAX),
        ("2 rows of 6 elements of image in 18", |it| it.note.rows = 2),
    ];
    for (said, change) in cases {
        let found = refused(Some(&sealed()), change);
        assert!(found.contains(said), "{said}: {found}");
    }
}

#[test]
fn an_empty_batch_has_no_memory_to_keep() {
    let mut fake = Fake::with_schema();
    let mut empty = told(0, 0, true);
    (empty.note.rows, empty.note.records, empty.columns) = (0, 0, vec![vec![]]);
    // Offsets of no rows have one element.
    empty.arrays = vec![(0, 0), (0, 0), (0, 0), (0, 0), (256, 8)];
    fake.tell(empty, Some(&sealed()));
    let batch = fake.next().unwrap().unwrap();
    assert_eq!((batch.rows(), batch.bytes("image").unwrap().len()), (0, 0));
    assert_eq!(batch.ragged::<i64>("tokens").unwrap(), (&[0][..], &[][..]));
    drop(batch);
    assert_eq!(fake.hear(), Some(FromClient::Released(0)));
}

#[test]
fn what_is_no_message_or_not_due_is_refused() {
    let refused = |bytes: &[u8]| {
        let mut fake = Fake::with_schema();
        fake.send(bytes, None);
        said(fake.next().unwrap_err())
    };
    assert!(refused(&[0xff; 4]).starts_with("a message of 4294967295 bytes, where at most"));
    assert!(refused(&framed(&"hello")).starts_with("a message that is none of this protocol"));
    assert!(refused(&framed(&FromServer::Schema("?".to_owned()))).starts_with("no schema: "));
    let schema = BASE64.encode(SchemaMessage::of(&all_kinds()).alone);
    assert_eq!(refused(&framed(&FromServer::Schema(schema))), "a second schema");
    let mut fake = Fake::begin();
    fake.tell(told(0, 0, true), Some(&sealed()));
    assert_eq!(said(fake.next().unwrap_err()), "a batch before the schema");

    let mut fake = Fake::with_schema();
    for number in 0..4 {
        fake.tell(told(number, 0, number == 0), (number == 0).then(sealed).as_ref());
    }
    // It is not handed over, since the lane has taken none.
    assert_eq!(fake.hear(), Some(FromClient::Released(3)));
    for _ in 0..WINDOW {
        assert!(fake.next().unwrap().is_some());
    }
    assert_eq!(said(fake.next().unwrap_err()), "more than the 3 batches that may be unacknowledged");
}
