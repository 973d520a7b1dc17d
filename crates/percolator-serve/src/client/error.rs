//! What can go wrong between a client and its server.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use percolator::Dtype;
use percolator_files::shown;

use crate::grpc::{Code, Status};
use crate::request::RequestError;

/// Why a client has no connection, a feed no stream, or a batch no such column.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is none.
    #[error(
        "{} is no address of a server ({what}): one is grpc://HOST:PORT, grpc+tls://HOST:PORT, \
         grpc+unix:///PATH or shared:///PATH",
        shown::line(url)
    )]
    Address {
        /// The address.
        url: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// What is set about certificates does not go with the address.
    #[error("{} {what}", shown::line(url))]
    Certificates {
        /// The address.
        url: String,
        /// What is wrong, and what to set.
        what: &'static str,
    },
    /// The token cannot be the value of a header.
    #[error("the token has characters that cannot be sent: a token is printable ASCII")]
    TokenCharacters,
    /// A file that TLS needs cannot be used.
    #[error("cannot use {} as the {what}", shown::path(path))]
    Pem {
        /// What it should have.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        error: Box<dyn Error + Send + Sync>,
    },
    /// The system gave no thread.
    #[error("the client's thread cannot be started")]
    Thread(#[source] io::Error),
    /// Nobody says which servers there are.
    #[error("cannot find out from {} which servers there are", shown::line(place))]
    Discover {
        /// What was asked.
        place: String,
        /// Why it does not say.
        #[source]
        error: Box<dyn Error + Send + Sync>,
    },
    /// There is no server at the moment.
    #[error(
        "there is no server in {}: start one, for a fleet by `percolator serve --join NAME`",
        shown::line(place)
    )]
    NoServer {
        /// What was asked.
        place: String,
    },
    /// Nobody answers at the address.
    #[error("cannot connect to {}: is a server listening there?", shown::line(url))]
    Connect {
        /// The server.
        url: String,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// Client and server do not agree on TLS.
    #[error(
        "no TLS with {}: does it speak TLS, do `authorities` name those who signed its certificate, and is \
         the certificate for this host?",
        shown::line(url)
    )]
    Tls {
        /// The server.
        url: String,
        /// The error of TLS.
        #[source]
        error: io::Error,
    },
    /// The server wants a client certificate, and there is none.
    #[error(
        "{} asks for a client certificate, and there is none: name one, and its key, by `identity`",
        shown::line(url)
    )]
    NoCertificate {
        /// The server.
        url: String,
        /// How the connection ended.
        #[source]
        error: Box<dyn Error + Send + Sync>,
    },
    /// The connection ended before an answer came.
    #[error(
        "{} hung up before it answered: is it a server of feeds, and is its address right (grpc:// without \
         TLS, grpc+tls:// with it)?",
        shown::line(url)
    )]
    Unanswered {
        /// The server.
        url: String,
        /// The error of the connection.
        #[source]
        error: Box<dyn Error + Send + Sync>,
    },
    /// The connection ended within an answer.
    #[error("the connection to {} broke", shown::line(url))]
    Broken {
        /// The server.
        url: String,
        /// The error of the connection.
        #[source]
        error: Box<dyn Error + Send + Sync>,
    },
    /// An answer ended without its status.
    #[error("an answer of {} ended before it was whole", shown::line(url))]
    CutOff {
        /// The server.
        url: String,
    },
    /// The server did not take the token, or there was none.
    #[error("{} wants a token that it knows, set by `token`: {}", shown::line(url), shown::message(message))]
    Token {
        /// The server.
        url: String,
        /// What it said.
        message: String,
    },
    /// The server refused what was asked for, or could not go on.
    #[error("{} answered {}: {}", shown::line(url), status.code, shown::message(&status.message))]
    Refused {
        /// The server.
        url: String,
        /// Its answer.
        status: Status,
    },
    /// The server sent what is not of this protocol.
    #[error(
        "{} sent {}: it is no server of feeds, or of another version, or something between changes what it \
         sends",
        shown::line(url),
        shown::message(found)
    )]
    Malformed {
        /// The server.
        url: String,
        /// What it sent.
        found: String,
    },
    /// The memory of a server on the same machine cannot be read here.
    #[error(
        "the memory of {} cannot be mapped: over Flight, grpc+unix://, batches are copied",
        shown::line(url)
    )]
    Unmapped {
        /// The server.
        url: String,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// A lane found no server for too long.
    #[error(
        "{} gave no batch for {after:.0?}, and the lane gave up: its ticket goes on later",
        shown::line(url)
    )]
    GaveUp {
        /// The server.
        url: String,
        /// For how long.
        after: Duration,
        /// How the last attempt failed.
        #[source]
        error: Box<ClientError>,
    },
    /// A task ended while it received a batch into a feed's memory, which nobody gives back.
    #[error("the lane lost the memory of a batch that it received: connect again")]
    Lost,
    /// A [`LaneCloser`](crate::LaneCloser) ended it.
    #[error("the lane was closed")]
    Closed,
    /// The request cannot be sent.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// It is not a ticket.
    #[error("this is no ticket ({what}): `RemoteFeed::ticket` and `RemoteLane::ticket` return one")]
    Ticket {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The feed has fewer ranks.
    #[error("there is no rank {rank}: the feed has {ranks}, counted from 0")]
    NoRank {
        /// The rank that was asked for.
        rank: usize,
        /// How many there are.
        ranks: usize,
    },
    /// A feed here would not know where its run is.
    #[error(
        "{} serves this feed without saying where its run starts, and a feed here needs that: {}",
        shown::line(url),
        shown::message(why)
    )]
    NoStart {
        /// The server.
        url: String,
        /// Why it does not say it.
        why: String,
    },
    /// The batch has no such column.
    #[error("there is no column {name:?}: the batches have {}", shown::line(found))]
    NoColumn {
        /// What was asked for.
        name: String,
        /// What there is.
        found: String,
    },
    /// The column has elements of another type.
    #[error("the column {name:?} has elements of {found}, not {asked}")]
    Type {
        /// The column.
        name: String,
        /// The type of its elements.
        found: Dtype,
        /// The type that was asked for.
        asked: Dtype,
    },
    /// The column is ragged, or is not.
    #[error("the column {name:?} is {what}")]
    Form {
        /// The column.
        name: String,
        /// What it is, and what returns it.
        what: &'static str,
    },
    /// A column's bytes are not values of its type.
    #[error("the column {name:?} has values that its type has not: {what}")]
    Values {
        /// The column.
        name: String,
        /// What is wrong with them.
        what: String,
    },
}

impl ClientError {
    /// Whether it may be otherwise a little later, or elsewhere: a server that is not there, goes, or let go
    /// of a lane.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Unanswered { .. } | Self::Broken { .. } | Self::CutOff { .. } => {
                true
            }
            Self::Refused { status, .. } => matches!(status.code, Code::Unavailable | Code::DeadlineExceeded),
            _ => false,
        }
    }

    /// Whether the server has no more room for clients, feeds or memory.
    pub(crate) fn is_for_want_of_room(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.code == Code::ResourceExhausted)
    }
}
