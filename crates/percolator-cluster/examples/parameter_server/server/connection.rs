//! One peer of a server: its requests, one after the other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use percolator_cluster::checkpoint::{CheckpointError, Checkpoints};
use tokio::net::TcpStream;
use tracing::warn;

use super::state::State;
use crate::shards::Shard;
use crate::stop::Stop;
use crate::wire::{self, Answer, Ask, Expected, Present, Push, Refused, Request, Said, Weights, WireError};

/// How long a peer may be silent. A trainer that waits for a block connects again when it has one.
const SILENT_FOR: Duration = Duration::from_secs(300);

/// What all peers of a server share.
pub(super) struct Shared {
    pub(super) shard: Shard,
    pub(super) checkpoints: Checkpoints<State>,
    /// How far a weight moves at once, at most.
    pub(super) rate: f32,
    pub(super) stop: Stop,
}

/// Answers a peer until it closes the connection, or says what cannot be answered.
pub(super) async fn serve(mut stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    // Small messages that wait for answers are not gathered.
    let _ = stream.set_nodelay(true);
    let expected =
        Expected { peer: "trainer", numbers: shared.shard.weights().len(), begins_within: SILENT_FOR };
    loop {
        let error = match wire::receive(&mut stream, expected).await {
            Ok(request) => match wire::send(&mut stream, &shared.answer(request)).await {
                Ok(()) => continue,
                Err(error) => error,
            },
            Err(error) => error,
        };
        // After what is no message, nobody knows where the next one begins.
        match &error {
            WireError::Closed => {}
            WireError::Length { .. } | WireError::Message(_) => {
                warn!(%peer, %error, "what came is not answered");
                let refused = refused(error.to_string(), false);
                let _ = wire::send(&mut stream, &refused).await;
            }
            _ => warn!(%peer, %error, "a peer is lost"),
        }
        return;
    }
}

impl Shared {
    fn answer(&self, request: Request) -> Answer {
        let Request { job, shard: number, of, ask } = request;
        let asked = Shard { job, number, of };
        let shard = &self.shard;
        match ask {
            Some(Ask::Probe(_)) => {
                let updates = self.checkpoints.state().read().updates();
                answer(Said::Present(Present { job: shard.job.clone(), shard: shard.number, updates }))
            }
            // It was another server's address, and may be in the trainer's memory still.
            Some(_) if asked != *shard => refused(format!("this is {shard}, and not {asked}"), true),
            Some(Ask::Pull(_)) => self.weights(),
            Some(Ask::Push(push)) => self.push(&push),
            None => refused("nothing is asked for, or something that this version does not know", false),
        }
    }

    fn weights(&self) -> Answer {
        let state = self.checkpoints.state().read();
        let (updates, weights) = (state.updates(), state.weights().to_vec());
        answer(Said::Weights(Weights { updates, weights }))
    }

    /// The lock is held for no longer than it takes to copy or change a shard, so no other task waits long.
    fn push(&self, push: &Push) -> Answer {
        let applied = self.checkpoints.state().write().apply(push, self.rate);
        match applied {
            Ok(true) => match self.checkpoints.step() {
                Ok(()) => self.weights(),
                Err(error) => self.give_up(error),
            },
            Ok(false) => self.weights(),
            Err(bad) => refused(bad.to_string(), false),
        }
    }

    /// Another process has the shard now, so this one ends.
    fn give_up(&self, error: CheckpointError) -> Answer {
        let answer = refused(format!("this server has ended: {error}"), true);
        self.stop.fail(error.into());
        answer
    }
}

fn answer(said: Said) -> Answer {
    Answer { said: Some(said) }
}

fn refused(message: impl Into<String>, may_pass: bool) -> Answer {
    answer(Said::Refused(Refused { message: message.into(), may_pass }))
}
