//! What a server of feeds and its clients say to each other.

use percolator_serve::fuzz::{self, Speaker, TicketKey};
use percolator_serve::{Code, FeedRequest, Status};

use crate::accepted::accepted;
use crate::memory::{Budget, uncounted, within};

/// The most bytes of a message: less than a corpus has, so that it is reached.
const MESSAGE_BYTES_MAX: usize = 4096;

/// The first byte says how many bytes come at one time, the rest what comes: its pieces.
fn in_pieces(bytes: &[u8]) -> Option<(impl Iterator<Item = &[u8]>, &[u8])> {
    let (&piece, rest) = bytes.split_first()?;
    Some((rest.chunks(usize::from(piece).max(1)), rest))
}

/// The request for a feed. What is read is written, and read again; a net that it has is looked at.
pub(crate) fn feed_request(bytes: &[u8]) {
    let Ok(request) = within(bytes, Budget::per_byte(256), || FeedRequest::parse(bytes)) else { return };
    accepted();
    let _ = within(bytes, Budget::mebibytes(4, 1024), || fuzz::described(&request).is_ok());
    let Ok(written) = request.to_json() else { return };
    let again = FeedRequest::parse(written.as_bytes());
    assert_eq!(again.unwrap_or_else(|error| panic!("{written}: {error}")), request);
}

/// A ticket, and the ticket of the same parts with the right signatures. What is read is written, and read
/// again; what was not signed is never read.
pub(crate) fn ticket(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let key = TicketKey::new(&[7; 32]);
    let read = |text: &str| within(text.as_bytes(), Budget::per_byte(256), || key.read(text));
    let signed = key.signed(text);
    if read(text).is_ok() {
        assert_eq!(signed.as_deref(), Some(text), "a ticket that was not signed is read");
    }
    let Some(Ok(ticket)) = signed.map(|signed| read(&signed)) else { return };
    accepted();
    let again = read(&ticket.again).expect("what was written is read");
    assert_eq!(again, ticket);
    let stranger = TicketKey::new(&[8; 32]);
    assert!(stranger.read(&ticket.again).is_err(), "another server reads it");
}

/// The messages of a call, in pieces. They are those of a naive reader, however they come; and a text is a
/// status's message.
pub(crate) fn grpc_messages(bytes: &[u8]) {
    let Some((pieces, rest)) = in_pieces(bytes) else { return };
    let (found, outcome) = within(bytes, Budget::per_byte(64), || fuzz::messages(pieces, MESSAGE_BYTES_MAX));
    let (due, is_within) = naive(rest);
    assert_eq!(found, due);
    assert_eq!(outcome.ok(), is_within);
    for message in found {
        accepted();
        if let Ok(written) = within(bytes, Budget::per_byte(64), || fuzz::said(message)) {
            let again = fuzz::said(written.clone().into()).expect("what was written is read");
            assert_eq!(again, written);
        }
    }
    if let Ok(text) = std::str::from_utf8(rest) {
        let status = status(text);
        let told = fuzz::told(&status).expect("it is a status").expect_err("it is an error");
        assert!(text.starts_with(&told.message) && told.code == status.code, "{told:?}");
    }
}

fn status(message: &str) -> Status {
    // Not to be made otherwise outside of the package.
    let (_, refused) = fuzz::messages([&[1, 0, 0, 0, 0][..]], 0);
    let mut status = refused.expect_err("it is compressed");
    assert_eq!(status.code, Code::Unimplemented);
    message.clone_into(&mut status.message);
    status
}

/// The messages, and whether more of one is there; `None` if one cannot be read.
fn naive(mut rest: &[u8]) -> (Vec<&[u8]>, Option<bool>) {
    let mut found = Vec::new();
    while let [is_compressed, a, b, c, d, after @ ..] = rest {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        if *is_compressed != 0 || length > MESSAGE_BYTES_MAX {
            return (found, None);
        }
        let Some((message, after)) = after.split_at_checked(length) else { break };
        found.push(message);
        rest = after;
    }
    (found, Some(!rest.is_empty()))
}

/// What is said over a socket of one machine, by a client (`C`) or a server, in pieces. The messages are the
/// same however they come, and are read again as they were written.
pub(crate) fn local_messages(bytes: &[u8]) {
    let Some((&piece, rest)) = bytes.split_first() else { return };
    let Some((&speaker, rest)) = rest.split_first() else { return };
    let speaker = if speaker == b'C' { Speaker::Client } else { Speaker::Server };
    let read = |bytes: &[u8], piece: usize| {
        within(bytes, Budget::per_byte(512), || {
            fuzz::local_messages(bytes.chunks(piece), speaker, MESSAGE_BYTES_MAX)
        })
    };
    let (found, outcome) = read(rest, usize::from(piece).max(1));
    let whole = read(rest, rest.len().max(1));
    assert_eq!((&found, &outcome), (&whole.0, &whole.1));
    if !found.is_empty() {
        accepted();
    }
    // Numbers that are not written as they were may make a message longer.
    let written = uncounted(|| found.concat());
    if found.iter().all(|message| message.len() <= MESSAGE_BYTES_MAX) {
        assert_eq!(read(&written, 7), (found, Ok(())));
    }
}

/// A stream of batches as a client receives it, in pieces. The batches are the same however they come.
pub(crate) fn flight_stream(bytes: &[u8]) {
    let Some((pieces, rest)) = in_pieces(bytes) else { return };
    let found = within(bytes, Budget::mebibytes(4, 256), || fuzz::batches(pieces)).ok();
    let whole = within(bytes, Budget::mebibytes(4, 256), || fuzz::batches([rest])).ok();
    assert_eq!(found, whole);
    if found.is_some() {
        accepted();
    }
}
