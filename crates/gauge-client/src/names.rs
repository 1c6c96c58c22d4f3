//! Names of servers and their addresses, looked up beside the lanes.
//!
//! A look-up may take seconds, and a lane that waited for it would send nothing meanwhile. So a lane asks for the address that is known and
//! goes on; who looks it up is a thread of its own. A name with several addresses is tried with each in turn, and one that could not be
//! reached is looked up again: a server may come back with another address.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use gauge_load::clock::monotonic_ns;

/// A name is not looked up more often than this.
const AGAIN_NS: i64 = 1_000_000_000;
/// Names that are remembered. A cluster has some; whoever advertises more than that is looked up anew.
const NAMES_MAX: usize = 4096;

type LookUp = fn(&str) -> std::io::Result<Vec<SocketAddr>>;

/// A `host:port` whose host is a name.
#[derive(Debug)]
pub(crate) struct Name {
    server: String,
    look_up: LookUp,
    /// It is an address, and nothing has to be looked up.
    is_address: bool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    addresses: Vec<SocketAddr>,
    /// How often one of them could not be reached.
    turn: usize,
    is_looking: bool,
    looked_ns: Option<i64>,
    trouble: Option<String>,
}

/// The name of a server; the same for all who ask.
pub(crate) fn of(server: &str) -> Arc<Name> {
    static NAMES: Mutex<BTreeMap<String, Arc<Name>>> = Mutex::new(BTreeMap::new());
    let mut names = locked(&NAMES);
    if let Some(name) = names.get(server) {
        return Arc::clone(name);
    }
    if names.len() >= NAMES_MAX {
        names.clear();
    }
    let name = Arc::new(Name::new(server, system));
    names.insert(server.to_owned(), Arc::clone(&name));
    name
}

fn system(server: &str) -> std::io::Result<Vec<SocketAddr>> {
    server.to_socket_addrs().map(Iterator::collect)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread that starts look-ups. It is made by the first who asks, before lanes have their priority, which threads inherit.
fn helper() -> &'static Mutex<Sender<Arc<Name>>> {
    static HELPER: OnceLock<Mutex<Sender<Arc<Name>>>> = OnceLock::new();
    HELPER.get_or_init(|| {
        let (wanted, asked) = channel::<Arc<Name>>();
        thread::spawn(move || {
            for name in asked {
                thread::spawn(move || name.look());
            }
        });
        Mutex::new(wanted)
    })
}

impl Name {
    fn new(server: &str, look_up: LookUp) -> Name {
        let addresses: Vec<SocketAddr> = server.parse().into_iter().collect();
        Name {
            server: server.to_owned(),
            look_up,
            is_address: !addresses.is_empty(),
            known: Mutex::new(Known {
                addresses,
                ..Known::default()
            }),
        }
    }

    /// Looks it up and waits for that. How many addresses it has.
    ///
    /// # Errors
    /// One sentence when it has none.
    pub fn wait(self: &Arc<Name>) -> Result<usize, String> {
        // Whoever may wait is not in a hurry: the time to make the thread that others will need.
        let _ = helper();
        if !self.is_address {
            self.look();
        }
        let known = locked(&self.known);
        match known.addresses.len() {
            0 => Err(self.told(&known)),
            some => Ok(some),
        }
    }

    /// The address to be tried now, `offset` places after the one whose turn it is; None while there is none, and then it is being looked up.
    pub fn address(self: &Arc<Name>, offset: usize) -> Option<SocketAddr> {
        let mut known = locked(&self.known);
        if known.addresses.is_empty() {
            self.ask(&mut known);
            return None;
        }
        let at = (known.turn + offset) % known.addresses.len();
        Some(known.addresses[at])
    }

    /// Its address could not be reached: the next one has its turn, and there may be others by now.
    pub fn failed(self: &Arc<Name>) {
        let mut known = locked(&self.known);
        known.turn += 1;
        self.ask(&mut known);
    }

    /// Why it has no address.
    pub fn trouble(&self) -> String {
        self.told(&locked(&self.known))
    }

    fn told(&self, known: &Known) -> String {
        match &known.trouble {
            Some(trouble) => format!("{:?} has no address: {trouble}; expected host:port", self.server),
            None => format!("{:?} is being looked up", self.server),
        }
    }

    fn ask(self: &Arc<Name>, known: &mut Known) {
        if self.is_address {
            return;
        }
        let is_fresh = known
            .looked_ns
            .is_some_and(|looked_ns| monotonic_ns() - looked_ns < AGAIN_NS);
        if !known.is_looking && !is_fresh {
            known.is_looking = true;
            // The helper lives as long as the process.
            let _ = locked(helper()).send(Arc::clone(self));
        }
    }

    fn look(&self) {
        let found = (self.look_up)(&self.server);
        let mut known = locked(&self.known);
        known.is_looking = false;
        known.looked_ns = Some(monotonic_ns());
        match found {
            Ok(addresses) if !addresses.is_empty() => {
                known.addresses = addresses;
                known.trouble = None;
            }
            Ok(_) => known.trouble = Some("the name is known, and stands for nothing".to_owned()),
            // What was known may still be right.
            Err(error) => known.trouble = Some(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};
    use std::time::Duration;

    use super::*;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn until(is_so: impl Fn() -> bool) {
        for _ in 0..500 {
            if is_so() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("it did not come about in five seconds");
    }

    #[test]
    fn nobody_waits_for_a_slow_look_up() {
        fn slow(_: &str) -> std::io::Result<Vec<SocketAddr>> {
            thread::sleep(Duration::from_millis(400));
            Ok(vec![address(1)])
        }
        let name = Arc::new(Name::new("slow:1", slow));
        let began_ns = monotonic_ns();
        assert_eq!(name.address(0), None);
        assert!(name.trouble().contains("being looked up"), "{}", name.trouble());
        assert!(monotonic_ns() - began_ns < 200_000_000, "asking takes no time");
        until(|| name.address(0) == Some(address(1)));
    }

    #[test]
    fn an_address_is_looked_up_by_nobody() {
        let never = |_: &str| panic!("there is nothing to look up");
        for server in ["127.0.0.1:1", "[::1]:1"] {
            let name = Arc::new(Name::new(server, never));
            assert_eq!(name.address(0), server.parse().ok(), "at once");
            assert_eq!(name.wait(), Ok(1));
            name.failed();
            assert_eq!(name.address(0), server.parse().ok());
            assert!(locked(&name.known).looked_ns.is_none());
        }
    }

    #[test]
    fn all_addresses_have_their_turn() {
        let two = |_: &str| Ok(vec![address(1), address(2)]);
        let name = Arc::new(Name::new("two:1", two));
        assert_eq!(name.wait(), Ok(2));
        assert_eq!(
            (name.address(0), name.address(1)),
            (Some(address(1)), Some(address(2)))
        );
        name.failed();
        assert_eq!(
            (name.address(0), name.address(1)),
            (Some(address(2)), Some(address(1)))
        );
    }

    #[test]
    fn a_server_may_come_back_with_another_address() {
        static PORT: AtomicU16 = AtomicU16::new(1);
        let moving = |_: &str| Ok(vec![address(PORT.load(Ordering::Relaxed))]);
        let name = Arc::new(Name::new("moving:1", moving));
        assert_eq!(name.wait(), Ok(1));
        PORT.store(2, Ordering::Relaxed);
        assert_eq!(name.address(0), Some(address(1)), "as long as it can be reached");
        until(|| {
            name.failed();
            name.address(0) == Some(address(2))
        });
    }

    #[test]
    fn what_has_no_address_says_so() {
        let none = |_: &str| Err(std::io::Error::other("nobody of that name"));
        let name = Arc::new(Name::new("none:1", none));
        let error = name.wait().unwrap_err();
        assert!(
            error.contains("\"none:1\" has no address: nobody of that name"),
            "{error}"
        );
    }
}
