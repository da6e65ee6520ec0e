//! The commands of README and guides that a server on loopback answers: each is sent verbatim. `src/guide.rs` tests
//! their syntax; commands that change volumes run in `pools`.

use crate::markdown::{blocks, files, of};
use crate::place::{Place, Server};

/// The settings of the guide of time series for two stores on a pool, with volumes and ports of this test.
fn place() -> Place {
    let place = Place::new();
    let guide = files().into_iter().find(|file| file.ends_with("series.md")).expect("the guide");
    let kv = "[kv]\npool = \"main\"\n";
    let both = of(&guide).into_iter().find(|block| {
        let has = |text| block.text.contains(text);
        block.info == ["toml", "complete"] && has(kv) && has("[series]\npool = \"main\"\n")
    });
    let text = both.expect("settings").text;
    let text = text
        .replace("/mnt/", "")
        .replace(kv, &format!("{kv}memory = \"32MiB\"\nlisten = \"127.0.0.1:0\"\n"));
    let listen = "listen = \"127.0.0.1:0\"\n";
    place.write(&format!("{text}\n[http]\n{listen}\n[admin]\n{listen}"));
    place
}

/// The words of a command; single quotes enclose one word.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (n, part) in command.split('\'').enumerate() {
        match n % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Acts like `curl`.
fn curl(server: &Server, words: &[String]) {
    let url = words.iter().find(|word| word.starts_with("http://")).expect("a URL");
    let path = url.strip_prefix("http://127.0.0.1:8086").expect("the usual port");
    let body = words.iter().position(|word| word == "--data-binary").map(|at| &words[at + 1]);
    let method = if body.is_some() { "POST" } else { "GET" };
    let body = body.map_or("", String::as_str);
    let endpoint = server.http.expect("an endpoint of time series");
    let answer = crate::points::ask(endpoint, &format!("{method} {path}"), "", body);
    assert!((200..300).contains(&answer.status), "{url}: {} {}", answer.status, answer.body);
}

#[test]
fn a_server_answers_the_commands_of_the_guides() {
    let place = place();
    let server = place.serve();
    let mut client = server.client();
    let (mut asked, mut sent) = (0, 0);
    for block in blocks().iter().filter(|block| block.language() == "sh") {
        for command in block.commands() {
            if let Some(line) = command.strip_prefix("redis-cli -p 6380 ") {
                asked += 1;
                let reply = client.ask(line);
                assert!(!reply.starts_with('-'), "{}: {command}: {reply}", block.place);
                // The elements of a list are separate replies.
                let more = reply.strip_prefix('*').map_or(0, |n| n.parse().expect("a number"));
                (0..more).for_each(|_: u64| assert!(client.reply().is_some(), "{command}"));
            } else if command.starts_with("curl ") {
                sent += 1;
                curl(&server, &words(&command));
            }
        }
    }
    assert!(asked >= 6 && sent >= 2, "{asked} commands and {sent} requests");
    server.stop();
    let ended = place.run(&["check", "-c", "plimsoll.toml", "--scrub"]);
    assert!(ended.status.success(), "{}{}", ended.out, ended.err);
}
