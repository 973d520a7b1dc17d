//! A way to a server that can be cut, stopped and slowed down, at any byte.

use std::collections::{HashMap, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Where bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Server,
    Client,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// After so many bytes, it is cut.
    Cut(To, u64),
    /// After so many bytes, nothing comes through any more, and neither end is told.
    Freeze(To, u64),
    /// After so many bytes, it stands still for so long.
    Stall(To, u64, Duration),
    /// Both ways, so many bytes go at one time.
    Crumbs(usize),
}

/// Passes bytes between clients and a server. Its connections end with it.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Is told when the proxy ends.
    end: Condvar,
}

struct State {
    server: SocketAddr,
    /// What happens to the next connections, one after the other.
    troubles: VecDeque<Trouble>,
    links: HashMap<u64, Link>,
    next_link: u64,
    /// The bytes that went to the server, and to clients.
    passed: [u64; 2],
    has_ended: bool,
}

/// A connection of a client, and the one to the server that belongs to it.
struct Link {
    client: TcpStream,
    server: TcpStream,
    is_frozen: bool,
    /// The ways that are open.
    ways: usize,
}

impl Link {
    fn cut(&self) {
        for end in [&self.client, &self.server] {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a connection, and returns its two ways.
    fn begin(self: &Arc<Self>, client: TcpStream) -> Option<[Way; 2]> {
        let server = self.state().server;
        // If nobody is there, the client is hung up on.
        let server = TcpStream::connect(server).ok()?;
        for end in [&client, &server] {
            let _ = end.set_nodelay(true);
        }
        let again = |end: &TcpStream| end.try_clone().unwrap();
        let mut state = self.state();
        let trouble = state.troubles.pop_front();
        let (link, number) = (Link { client, server, is_frozen: false, ways: 2 }, state.next_link);
        let way = |to, from: &TcpStream, into: &TcpStream| Way {
            link: number,
            to,
            from: again(from),
            into: again(into),
            trouble,
            passed: 0,
            shared: self.clone(),
        };
        let ways = [way(To::Server, &link.client, &link.server), way(To::Client, &link.server, &link.client)];
        if state.has_ended {
            link.cut();
        }
        state.next_link += 1;
        state.links.insert(number, link);
        Some(ways)
    }

    fn wait_for_end(&self) {
        let state = self.end.wait_while(self.state(), |state| !state.has_ended);
        drop(state);
    }
}

/// One way of a connection.
struct Way {
    link: u64,
    to: To,
    from: TcpStream,
    into: TcpStream,
    trouble: Option<Trouble>,
    passed: u64,
    shared: Arc<Shared>,
}

/// What becomes of a way.
enum Fate {
    Open,
    Over,
}

impl Way {
    /// Passes bytes until the connection ends.
    fn pass(mut self) {
        while let Fate::Open = self.strike() {
            let mut bytes = [0; 16 * 1024];
            let Ok(read @ 1..) = self.from.read(&mut bytes) else { break };
            if let Fate::Over = self.pass_on(&bytes[..read]) {
                break;
            }
        }
        let shared = self.shared.clone();
        let mut state = shared.state();
        if let Some(link) = state.links.get_mut(&self.link) {
            if link.is_frozen {
                // Neither end is told.
                return;
            }
            let _ = self.into.shutdown(Shutdown::Write);
            link.ways -= 1;
            if link.ways == 0 {
                state.links.remove(&self.link);
            }
        }
    }

    fn pass_on(&mut self, mut bytes: &[u8]) -> Fate {
        while !bytes.is_empty() {
            if self.is_frozen() {
                self.shared.wait_for_end();
                return Fate::Over;
            }
            let most = match self.trouble {
                Some(Trouble::Crumbs(most)) => most,
                _ => self.due_in().map_or(usize::MAX, |left| usize::try_from(left).unwrap()),
            };
            let (piece, after) = bytes.split_at(bytes.len().min(most));
            if self.into.write_all(piece).is_err() {
                return Fate::Over;
            }
            bytes = after;
            self.passed += piece.len() as u64;
            self.shared.state().passed[usize::from(self.to == To::Client)] += piece.len() as u64;
            if let Fate::Over = self.strike() {
                return Fate::Over;
            }
        }
        Fate::Open
    }

    /// How many bytes are passed before the trouble, if there is one this way.
    fn due_in(&self) -> Option<u64> {
        match self.trouble? {
            Trouble::Cut(to, at) | Trouble::Freeze(to, at) | Trouble::Stall(to, at, _) if to == self.to => {
                Some(at - self.passed)
            }
            _ => None,
        }
    }

    /// Lets the trouble happen, if it is due.
    fn strike(&mut self) -> Fate {
        if self.due_in() != Some(0) {
            return Fate::Open;
        }
        match self.trouble.take() {
            Some(Trouble::Cut(..)) => {
                self.shared.state().links.get(&self.link).iter().for_each(|link| link.cut());
                Fate::Over
            }
            Some(Trouble::Freeze(..)) => {
                self.shared.state().links.get_mut(&self.link).unwrap().is_frozen = true;
                self.shared.wait_for_end();
                Fate::Over
            }
            Some(Trouble::Stall(_, _, time)) => {
                thread::sleep(time);
                Fate::Open
            }
            _ => Fate::Open,
        }
    }

    fn is_frozen(&self) -> bool {
        self.shared.state().links.get(&self.link).is_some_and(|link| link.is_frozen)
    }
}

impl Proxy {
    pub(crate) fn new(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            server,
            troubles: VecDeque::new(),
            links: HashMap::new(),
            next_link: 0,
            passed: [0; 2],
            has_ended: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), end: Condvar::new() });
        let accepts = shared.clone();
        let accepting = thread::spawn(move || {
            let mut ways: Vec<JoinHandle<()>> = Vec::new();
            for client in listener.incoming() {
                ways.retain(|way| !way.is_finished());
                if accepts.state().has_ended {
                    break;
                }
                let Ok(client) = client else { continue };
                for way in accepts.begin(client).into_iter().flatten() {
                    ways.push(thread::spawn(move || way.pass()));
                }
            }
            ways.into_iter().for_each(|way| way.join().unwrap());
        });
        Proxy { address, shared, accepting: Some(accepting) }
    }

    pub(crate) fn url(&self) -> String {
        format!("grpc://{}", self.address)
    }

    /// What happens to the next connections, one after the other. Those after them have no trouble.
    pub(crate) fn trouble(&self, troubles: impl IntoIterator<Item = Trouble>) {
        self.shared.state().troubles = troubles.into_iter().collect();
    }

    /// The next connections are to this server.
    pub(crate) fn redirect(&self, server: SocketAddr) {
        self.shared.state().server = server;
    }

    /// Cuts all connections.
    pub(crate) fn cut_all(&self) {
        self.shared.state().links.values().for_each(Link::cut);
    }

    /// The bytes that went to the server, and those that went to clients.
    pub(crate) fn passed(&self) -> [u64; 2] {
        self.shared.state().passed
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state();
            state.has_ended = true;
            state.links.values().for_each(Link::cut);
            self.shared.end.notify_all();
        }
        // Wakes who accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        self.shared.state().links.clear();
    }
}
