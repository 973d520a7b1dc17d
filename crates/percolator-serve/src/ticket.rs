//! Tickets: which stream a client may take, from which step, signed by the server.
//!
//! A ticket is a text: `percolator1.STREAM.MAC`, or `percolator1.STREAM.MAC.POSITION.MAC` after a batch. What
//! the server signed, it takes again, also after it was started anew with the same key, and so does every
//! server that has this key. Whoever reads a ticket sees what it is for; nobody else can make one.

use std::fmt;
use std::io;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use percolator::record::StepId;
use percolator_files::shown;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use crate::request::{FeedRequest, REQUEST_BYTES_MAX, RequestError};

/// What each ticket begins with: its version.
const BEGIN: &str = "percolator1";

/// The bytes of a key, and of a signature.
const KEY_BYTES: usize = 32;

/// The most bytes of a ticket's text.
pub(crate) const TICKET_BYTES_MAX: usize = 2 * REQUEST_BYTES_MAX;

/// What a server signs its tickets with.
pub(crate) struct Key(hmac::Key);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Why a server has no key.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("cannot {what} the key {}", shown::path(path))]
    Io {
        /// What failed.
        what: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// It is not a key.
    #[error(
        "{} has {found} bytes, and a key has {KEY_BYTES}: name another file, which is then made",
        shown::path(path)
    )]
    Length {
        /// The file.
        path: std::path::PathBuf,
        /// Its bytes.
        found: u64,
    },
    /// The system has no random numbers.
    #[error("the system gave no random numbers for a key")]
    Random,
}

/// A stream: a rank of a feed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamId {
    pub(crate) request: FeedRequest,
    pub(crate) rank: usize,
}

/// Where a stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Position {
    /// With this step.
    Step(StepId),
    /// Nowhere: all was taken.
    End,
}

/// What a ticket says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TicketContent {
    pub(crate) stream: StreamId,
    /// `None` for a stream from its beginning.
    pub(crate) from: Option<Position>,
}

/// Why a ticket is not taken.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum TicketError {
    /// It is not a ticket.
    #[error("this is no ticket of Percolator: {what}")]
    Form {
        /// What is wrong with it.
        what: &'static str,
    },
    /// Its signature is not this server's.
    #[error(
        "this ticket was not signed with this server's key: it was changed, or it is another server's; \
         servers that take each other's tickets, or their own after a restart, have one key file (--key)"
    )]
    Signature,
    /// It was signed, and describes no feed.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl Key {
    /// A key that nobody else has.
    pub(crate) fn new() -> Result<Self, KeyError> {
        Ok(Self::of(&random_bytes()?))
    }

    pub(crate) fn of(bytes: &[u8]) -> Self {
        Key(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// The key in a file, which is made if it is not there, readable by its owner alone.
    pub(crate) fn open(path: &Path) -> Result<Self, KeyError> {
        let failed = |what| move |error| KeyError::Io { what, path: path.to_owned(), error };
        match read_some(path) {
            Ok((bytes, _)) if bytes.len() == KEY_BYTES => Ok(Self::of(&bytes)),
            Ok((_, found)) => Err(KeyError::Length { path: path.to_owned(), found }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A server that was killed here, or one in another container with the same process number,
                // has left or makes a file of another name.
                let name = BASE64.encode(&random_bytes()?[..9]);
                write_new(path, &random_bytes()?, &name).map_err(failed("write"))?;
                // Another server may have been faster: then its key is the key.
                let (bytes, found) = read_some(path).map_err(failed("read"))?;
                if bytes.len() == KEY_BYTES {
                    return Ok(Self::of(&bytes));
                }
                Err(KeyError::Length { path: path.to_owned(), found })
            }
            Err(error) => Err(failed("read")(error)),
        }
    }

    fn sign(&self, text: &str) -> String {
        BASE64.encode(hmac::sign(&self.0, text.as_bytes()))
    }

    fn verify(&self, text: &str, signature: &str) -> Result<(), TicketError> {
        let signature = BASE64.decode(signature).map_err(|_| TicketError::Signature)?;
        hmac::verify(&self.0, text.as_bytes(), &signature).map_err(|_| TicketError::Signature)
    }

    /// The ticket of a stream from its beginning.
    pub(crate) fn ticket(&self, stream: &StreamId) -> Result<String, RequestError> {
        let content = serde_json::to_vec(stream).map_err(RequestError::Form)?;
        let text = format!("{BEGIN}.{}", BASE64.encode(content));
        let signature = self.sign(&text);
        Ok(format!("{text}.{signature}"))
    }

    /// The ticket of these parts with the right signatures, if there are as many as a ticket has.
    pub(crate) fn signed_anew(&self, ticket: &str) -> Option<String> {
        let signed = |text: String| {
            let signature = self.sign(&text);
            format!("{text}.{signature}")
        };
        let parts: Vec<&str> = ticket.split('.').collect();
        match parts[..] {
            [begin, content, _] => Some(signed(format!("{begin}.{content}"))),
            [begin, content, _, position, _] => {
                let of_stream = signed(format!("{begin}.{content}"));
                Some(signed(format!("{of_stream}.{position}")))
            }
            _ => None,
        }
    }

    /// What is appended to a stream's ticket to go on from here.
    pub(crate) fn position(&self, ticket: &str, position: Position) -> String {
        let position = match position {
            Position::Step(StepId { epoch, step }) => format!(".{epoch}-{step}"),
            Position::End => ".end".to_owned(),
        };
        let signature = self.sign(&format!("{ticket}{position}"));
        format!("{position}.{signature}")
    }

    /// Reads a ticket, and the part of it that is the stream's.
    pub(crate) fn read<'t>(&self, ticket: &'t str) -> Result<(TicketContent, &'t str), TicketError> {
        let form = |what| TicketError::Form { what };
        if ticket.len() > TICKET_BYTES_MAX {
            return Err(form("it is too long"));
        }
        let parts: Vec<&str> = ticket.split('.').collect();
        let (content, signature, position) = match parts[..] {
            [BEGIN, content, signature] => (content, signature, None),
            [BEGIN, content, signature, position, its] => (content, signature, Some((position, its))),
            [BEGIN, ..] => return Err(form("its parts are not three or five")),
            _ => return Err(form("it does not begin with percolator1")),
        };
        let stream_end = BEGIN.len() + content.len() + signature.len() + 2;
        self.verify(&ticket[..BEGIN.len() + 1 + content.len()], signature)?;
        let of_stream = &ticket[..stream_end];
        let from = match position {
            None => None,
            Some((position, its)) => {
                self.verify(&ticket[..stream_end + 1 + position.len()], its)?;
                Some(parse_position(position).ok_or(form("its position is none"))?)
            }
        };
        let content = BASE64.decode(content).map_err(|_| form("it is not base64"))?;
        let stream: StreamId = serde_json::from_slice(&content).map_err(RequestError::Form)?;
        // Another version of the server may have signed it.
        stream.request.check()?;
        Ok((TicketContent { stream, from }, of_stream))
    }
}

/// What a ticket says that it is for. Nobody has looked at its signature.
pub(crate) fn unverified(ticket: &str) -> Option<StreamId> {
    let content = BASE64.decode(ticket.split('.').nth(1)?).ok()?;
    serde_json::from_slice(&content).ok()
}

fn parse_position(text: &str) -> Option<Position> {
    if text == "end" {
        return Some(Position::End);
    }
    let (epoch, step) = text.split_once('-')?;
    Some(Position::Step(StepId { epoch: epoch.parse().ok()?, step: step.parse().ok()? }))
}

fn random_bytes() -> Result<[u8; KEY_BYTES], KeyError> {
    let mut bytes = [0; KEY_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::Random)?;
    Ok(bytes)
}

/// Up to one byte more than a key, and how many the file has.
fn read_some(path: &Path) -> io::Result<(Vec<u8>, u64)> {
    use std::io::Read;
    let file = std::fs::File::open(path)?;
    let mut bytes = Vec::new();
    let found = file.metadata()?.len();
    file.take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes, found))
}

/// Writes a file that only its owner may read, whole, unless it is there. Its name has this ending at first.
fn write_new(path: &Path, bytes: &[u8], ending: &str) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{ending}"));
    let beside = path.with_file_name(name);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    // A link does not replace a key that another server has made meanwhile.
    let linked = written.and_then(|()| std::fs::hard_link(&beside, path));
    std::fs::remove_file(&beside)?;
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use percolator::feed::FeedSpec;

    fn stream() -> StreamId {
        StreamId { request: FeedRequest::feed(FeedSpec::default()), rank: 3 }
    }

    #[test]
    fn what_was_signed_is_read_with_its_position() {
        let key = Key::new().unwrap();
        let ticket = key.ticket(&stream()).unwrap();
        assert_eq!(key.read(&ticket).unwrap(), (TicketContent { stream: stream(), from: None }, &*ticket));
        for from in [Position::Step(StepId { epoch: 7, step: u64::MAX }), Position::End] {
            let later = ticket.clone() + &key.position(&ticket, from);
            let content = TicketContent { stream: stream(), from: Some(from) };
            assert_eq!(key.read(&later).unwrap(), (content, &*ticket));
            assert_eq!(unverified(&later), Some(stream()));
            let forged = Key::new().unwrap().signed_anew(&later).unwrap();
            assert!(key.read(&forged).is_err());
            assert_eq!(key.signed_anew(&forged), Some(later));
        }
        assert_eq!(key.signed_anew("percolator1.X"), None);
    }

    #[test]
    fn no_letter_of_a_ticket_may_change() {
        let key = Key::new().unwrap();
        let mut ticket = key.ticket(&stream()).unwrap();
        ticket += &key.position(&ticket, Position::Step(StepId { epoch: 1, step: 20 }));
        for at in 0..ticket.len() {
            let mut changed = ticket.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            // The last letter of base64 has bits that mean nothing; the decoder refuses all but zeros.
            assert!(key.read(&changed).is_err(), "{changed}");
            assert!(key.read(&ticket[..at]).is_err() || ticket[..at] == *key.ticket(&stream()).unwrap());
        }
        assert!(matches!(Key::new().unwrap().read(&ticket), Err(TicketError::Signature)));
        let mut newer = stream();
        newer.request.version += 1;
        let newer = key.read(&key.ticket(&newer).unwrap()).unwrap_err();
        assert!(matches!(newer, TicketError::Request(RequestError::Version { found: 2 })), "{newer}");
        // The position of another stream's ticket.
        let other = StreamId { rank: 4, ..stream() };
        let other = key.ticket(&other).unwrap();
        let foreign = key.ticket(&stream()).unwrap() + &key.position(&other, Position::End);
        assert!(matches!(key.read(&foreign), Err(TicketError::Signature)));
    }

    #[test]
    fn a_key_in_a_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let ticket = Key::open(&path).unwrap().ticket(&stream()).unwrap();
        assert!(Key::open(&path).unwrap().read(&ticket).is_ok());
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!((mode & 0o777, folder.path().read_dir().unwrap().count()), (0o600, 1));
        std::fs::write(&path, [0; 33]).unwrap();
        let error = Key::open(&path).unwrap_err().to_string();
        assert!(error.ends_with("has 33 bytes, and a key has 32: name another file, which is then made"));
        assert!(matches!(Key::open(folder.path()), Err(KeyError::Io { what: "read", .. })));
    }
}
