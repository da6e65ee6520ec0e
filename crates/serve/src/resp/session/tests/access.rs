//! Passwords and users that change while clients are connected.

use super::*;
use crate::May;
use crate::resp::User;

fn user(password: &str, may: May) -> User {
    User { name: "app".into(), password: Secret::new(password), may }
}

/// A connection, and its replies to each line.
struct Talk<'s> {
    service: &'s Service,
    session: Session,
}

impl<'s> Talk<'s> {
    fn new(service: &'s Service) -> Self {
        Self { service, session: Session::new(1, service) }
    }

    fn ask(&mut self, line: &str) -> String {
        let words = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes()));
        let (mut requests, mut out) = (VecDeque::from([words.collect()]), BytesMut::new());
        self.session.execute(self.service, &mut requests, &mut out, usize::MAX);
        String::from_utf8_lossy(&out).trim_end().replace("\r\n", " ")
    }
}

const NO_AUTH: &str = "-NOAUTH Authentication required.";

#[test]
fn what_was_replaced_lets_nobody_in_and_what_stayed_does() {
    let service = service(Memory::default(), Some("old"));
    service.access.replace(Some(Secret::new("old")), vec![user("secret", May::All)]);
    let (mut owner, mut app) = (Talk::new(&service), Talk::new(&service));
    assert_eq!(owner.ask("auth old"), "+OK");
    assert_eq!(app.ask("auth app secret"), "+OK");
    assert_eq!(app.ask("multi"), "+OK");
    assert_eq!(app.ask("set k v"), "+QUEUED");

    // The user has fewer rights, and the password is replaced.
    service.access.replace(Some(Secret::new("new")), vec![user("secret", May::Read)]);
    assert_eq!(owner.ask("get k"), NO_AUTH);
    assert_eq!(
        owner.ask("auth old"),
        "-WRONGPASS invalid username-password pair or user is disabled."
    );
    assert_eq!(owner.ask("auth new"), "+OK");
    assert_eq!(owner.ask("set k v"), "+OK");
    assert_eq!(app.ask("discard"), "+OK");
    assert_eq!(app.ask("get k"), "$1 v");
    assert!(app.ask("set k w").starts_with("-NOPERM "));

    // The user is removed, with its queue.
    assert_eq!(app.ask("multi"), "+OK");
    service.access.replace(Some(Secret::new("new")), Vec::new());
    assert_eq!(app.ask("get k"), NO_AUTH);
    assert!(!app.session.is_authenticated());
    assert_eq!(app.ask("auth new"), "+OK");
    assert_eq!(app.ask("exec"), "-ERR EXEC without MULTI");
    assert_eq!(owner.ask("get k"), "$1 v", "who is still let in notices nothing");
}

#[test]
fn a_first_password_is_asked_of_everybody() {
    let service = service(Memory::default(), None);
    let mut one = Talk::new(&service);
    assert_eq!(one.ask("ping"), "+PONG");
    service.access.replace(Some(Secret::new("new")), Vec::new());
    assert_eq!(one.ask("ping"), NO_AUTH);
    assert_eq!(one.ask("auth new"), "+OK");
    assert_eq!(one.ask("ping"), "+PONG");
}

/// Once, a user whose rights were reduced during a transaction still wrote through `EXEC`.
#[test]
fn a_transaction_is_discarded_when_rights_change_before_exec() {
    let service = service(Memory::default(), Some("owner"));
    let allow = |may| {
        service.access.replace(Some(Secret::new("owner")), vec![user("secret", may)]);
    };
    allow(May::All);
    let mut app = Talk::new(&service);
    assert_eq!(app.ask("auth app secret"), "+OK");
    assert_eq!(app.ask("multi"), "+OK");
    assert_eq!(app.ask("set k v"), "+QUEUED");
    allow(May::Read);
    assert_eq!(app.ask("exec"), "-EXECABORT Transaction discarded because of previous errors.");
    assert_eq!(app.ask("get k"), "$-1");

    // A reload that does not change the user's rights keeps the transaction.
    assert_eq!(app.ask("multi"), "+OK");
    assert_eq!(app.ask("get k"), "+QUEUED");
    allow(May::Read);
    assert_eq!(app.ask("exec"), "*1 $-1");
}
