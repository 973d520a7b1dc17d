//! Which servers there are for a client, and which of them it asks for a feed.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use percolator_files::shown;
use sha2::{Digest, Sha256};

use super::connection::Dialer;
use super::error::ClientError;
use crate::request::FeedRequest;

/// Where a client finds its servers, if they come and go: see [`Client::discover`](crate::Client::discover).
pub trait Discover: fmt::Debug + Send + Sync {
    /// The addresses of the servers that are there now, each as [`Client::connect`](crate::Client::connect)
    /// takes it, in any order. It is asked when something is asked of a server, or a lane looks for another
    /// one, and no more than once in a second.
    ///
    /// # Errors
    ///
    /// If nobody knows. A client that knows servers from before goes on with them.
    fn servers(&self) -> Result<Vec<String>, Box<dyn std::error::Error + Send + Sync>>;

    /// What is asked, for messages.
    fn place(&self) -> String;
}

/// Makes what connects to a server, of a name and at an address.
type MakeDialer = Box<dyn Fn(String, String) -> Result<Dialer, ClientError> + Send + Sync>;

/// How long a list of servers is taken for the present one, and how long nobody is asked who did not answer.
const FRESH_FOR: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(5);

/// The servers of a client.
pub(crate) struct Servers {
    known: Mutex<Known>,
    found: Option<(Arc<dyn Discover>, MakeDialer)>,
}

struct Known {
    /// There is always at least one.
    servers: Vec<Arc<Dialer>>,
    /// From when on it is asked again which there are.
    stale: Instant,
}

/// What orders the servers for a feed, by rendezvous hashing: its clients all go through them in one order,
/// and those of other feeds in others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeedDigest([u8; 32]);

impl FeedDigest {
    pub(crate) fn of(request: &FeedRequest) -> Self {
        // What cannot be written cannot be asked for either.
        FeedDigest(Sha256::digest(request.of_feed().to_json().unwrap_or_default()).into())
    }

    /// For what is of no feed, or of one that nobody knows.
    pub(crate) fn any() -> Self {
        FeedDigest([0; 32])
    }

    /// A server's score, of which the least is first. When servers come and go, the others keep their order.
    fn score(self, server: &Dialer) -> [u8; 32] {
        Sha256::new().chain_update(self.0).chain_update(&server.name).finalize().into()
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.known.lock().servers).finish()
    }
}

impl Servers {
    /// Those of a list with commas in it. Clients may name the same servers by other addresses, in the same
    /// order.
    pub(crate) fn listed(
        urls: &str,
        make: impl Fn(String, String) -> Result<Dialer, ClientError>,
    ) -> Result<Self, ClientError> {
        let servers = urls.split(',').zip(0_usize..);
        let servers =
            servers.map(|(url, place)| make(place.to_string(), url.trim().to_owned()).map(Arc::new));
        let servers = servers.collect::<Result<_, _>>()?;
        Ok(Servers { known: Mutex::new(Known { servers, stale: Instant::now() }), found: None })
    }

    /// Those that are found.
    pub(crate) fn found(
        discover: Arc<dyn Discover>,
        make: impl Fn(String, String) -> Result<Dialer, ClientError> + Send + Sync + 'static,
    ) -> Result<Self, ClientError> {
        let known = Known { servers: Vec::new(), stale: Instant::now() };
        let servers = Servers { known: Mutex::new(known), found: Some((discover, Box::new(make))) };
        servers.look()?;
        Ok(servers)
    }

    /// Those that are there now, in the order in which they are asked; if nobody says it, those from before.
    pub(crate) fn now(&self, feed: FeedDigest) -> Vec<Arc<Dialer>> {
        if Instant::now() >= self.known.lock().stale
            && let Err(error) = self.look()
        {
            tracing::warn!(error = %shown::with_sources(&error), "the servers from before are asked");
        }
        let mut servers = self.known.lock().servers.clone();
        servers.sort_by_cached_key(|server| feed.score(server));
        servers
    }

    /// The server that comes after one that failed, whether or not that is still known.
    pub(crate) fn after(&self, failed: &Dialer, feed: FeedDigest) -> Arc<Dialer> {
        let servers = self.now(feed);
        let next = servers.iter().find(|server| feed.score(server) > feed.score(failed));
        next.unwrap_or(&servers[0]).clone()
    }

    /// Looks which servers are there, if they are found. Those that stay keep what they were made with.
    fn look(&self) -> Result<(), ClientError> {
        let Some((discover, make)) = &self.found else { return Ok(()) };
        let seen = self.seen(&**discover, make);
        let known = &mut *self.known.lock();
        known.stale = Instant::now() + if seen.is_ok() { FRESH_FOR } else { PAUSE };
        known.servers = seen?;
        Ok(())
    }

    fn seen(&self, discover: &dyn Discover, make: &MakeDialer) -> Result<Vec<Arc<Dialer>>, ClientError> {
        let urls = discover.servers();
        let urls = urls.map_err(|error| ClientError::Discover { place: discover.place(), error })?;
        let before = self.known.lock().servers.clone();
        let (mut servers, mut unusable): (Vec<Arc<Dialer>>, _) = (Vec::new(), None);
        for url in urls {
            if servers.iter().any(|server| server.url == url) {
                continue;
            }
            let kept = before.iter().find(|server| server.url == url).cloned();
            match kept.map_or_else(|| make(url.clone(), url).map(Arc::new), Ok) {
                Ok(server) => servers.push(server),
                Err(error) => {
                    tracing::warn!(error = %shown::with_sources(&error), "a server is left out");
                    unusable = unusable.or(Some(error));
                }
            }
        }
        match servers.is_empty() {
            true => Err(unusable.unwrap_or_else(|| ClientError::NoServer { place: discover.place() })),
            false => Ok(servers),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::client::runtime::ClientRuntime;

    /// What is found: addresses, or nothing at all.
    #[derive(Debug, Default)]
    struct Said(Mutex<Option<Vec<&'static str>>>);

    impl Discover for Said {
        fn servers(&self) -> Result<Vec<String>, Box<dyn std::error::Error + Send + Sync>> {
            let said = self.0.lock().clone().ok_or("nobody answers")?;
            Ok(said.into_iter().map(str::to_owned).collect())
        }

        fn place(&self) -> String {
            "a list".to_owned()
        }
    }

    fn feeds() -> impl Iterator<Item = FeedDigest> {
        (0..32).map(|number| FeedDigest([number; 32]))
    }

    struct Bench {
        said: Arc<Said>,
        servers: Result<Servers, ClientError>,
        _runtime: ClientRuntime,
    }

    impl Bench {
        fn found(urls: &[&'static str]) -> Self {
            let said = Arc::new(Said(Mutex::new(Some(urls.to_vec()))));
            let runtime = ClientRuntime::start().unwrap();
            let tasks = runtime.tasks();
            let make = move |name, url| Dialer::new(name, url, None, None, None, tasks.clone());
            Bench { servers: Servers::found(said.clone(), make), said, _runtime: runtime }
        }

        fn servers(&self) -> &Servers {
            self.servers.as_ref().unwrap()
        }

        /// Says something else, and forgets how old the list is.
        fn say(&self, urls: Option<&[&'static str]>) {
            *self.said.0.lock() = urls.map(<[_]>::to_vec);
            self.servers().known.lock().stale = Instant::now();
        }

        fn urls(&self, feed: FeedDigest) -> Vec<String> {
            self.servers().now(feed).iter().map(|server| server.url.clone()).collect()
        }
    }

    #[test]
    fn feeds_spread_over_servers_and_keep_their_order_when_some_go() {
        let all = ["grpc://a:1", "grpc://b:1", "grpc://c:1"];
        let bench = Bench::found(&all);
        let orders: Vec<_> = feeds().map(|feed| bench.urls(feed)).collect();
        let firsts: BTreeSet<_> = orders.iter().map(|order| order[0].clone()).collect();
        assert_eq!(firsts.len(), 3, "{orders:?}");
        bench.say(Some(&["grpc://c:1", "grpc://a:1", "grpc://c:1"]));
        for (feed, mut order) in feeds().zip(orders) {
            order.retain(|url| url != "grpc://b:1");
            assert_eq!(bench.urls(feed), order);
        }
    }

    #[test]
    fn after_a_server_comes_the_next_one_also_if_it_is_gone() {
        let bench = Bench::found(&["grpc://a:1", "grpc://b:1", "grpc://c:1"]);
        for feed in feeds() {
            bench.say(Some(&["grpc://a:1", "grpc://b:1", "grpc://c:1"]));
            let servers = bench.servers().now(feed);
            let next = |place: usize| bench.servers().after(&servers[place], feed).url.clone();
            assert_eq!([next(0), next(1), next(2)], [1, 2, 0].map(|place: usize| servers[place].url.clone()));
            let left = ["grpc://a:1", "grpc://b:1", "grpc://c:1"];
            let left: Vec<_> = left.into_iter().filter(|url| *url != servers[1].url).collect();
            bench.say(Some(&left));
            assert_eq!(next(1), servers[2].url);
        }
        let alone = Bench::found(&["grpc://a:1"]);
        let server = alone.servers().now(FeedDigest::any()).remove(0);
        assert!(Arc::ptr_eq(&alone.servers().after(&server, FeedDigest::any()), &server));
    }

    #[test]
    fn each_place_of_a_list_is_a_server_of_its_own() {
        let runtime = ClientRuntime::start().unwrap();
        let make = |name, url| Dialer::new(name, url, None, None, None, runtime.tasks());
        let servers = Servers::listed("grpc://a:1, grpc://a:1,grpc://b:1", make).unwrap();
        for feed in feeds() {
            let mut server = servers.now(feed).remove(0);
            let mut seen = BTreeSet::new();
            for _ in 0..3 {
                seen.insert(server.name.clone());
                server = servers.after(&server, feed);
            }
            assert_eq!(seen.len(), 3);
        }
    }

    #[test]
    fn who_does_not_answer_and_what_is_no_address_leave_the_servers_that_are_known() {
        let bench = Bench::found(&["grpc://a:1"]);
        for said in [None, Some(&[][..]), Some(&["nowhere"][..])] {
            bench.say(said);
            assert_eq!(bench.urls(FeedDigest::any()), ["grpc://a:1"], "{said:?}");
        }
        // It is not asked again at once.
        *bench.said.0.lock() = Some(vec!["grpc://b:1"]);
        assert_eq!(bench.urls(FeedDigest::any()), ["grpc://a:1"]);
        bench.say(Some(&["nowhere", "grpc+tls://c:1", "grpc://b:1"]));
        assert_eq!(bench.urls(FeedDigest::any()), ["grpc://b:1"]);
        let refused = |urls| Bench::found(urls).servers.unwrap_err().to_string();
        assert!(refused(&[]).starts_with("there is no server in a list"));
        assert!(refused(&["nowhere"]).starts_with("nowhere is no address of a server"));
    }
}
