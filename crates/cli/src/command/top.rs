//! `plimsoll top`: a live view of a running server.
//!
//! It polls the admin listener for the server's figures and shows the change between the last two answers. [`view`]
//! computes the rows, [`block`] those of block devices, [`tier`] those of cache tiers; [`draw`] shows them on a terminal, [`plain`] as lines.

mod block;
mod draw;
mod plain;
mod tier;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serve::admin::Snapshot;
use volume::Clock;
use volume::task::block_on;

use self::draw::Screen;
use self::view::{Sort, View};
use super::admin::{Endpoint, Where};

/// Shows a running server: the load of each volume against its paid IOPS, and the waiting requests
///
/// Keys: q quits, p pauses, s changes the sort order, S reverses it. Where standard output is no terminal, it
/// prints one picture as text, as with --once.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  plimsoll top
  plimsoll top -c plimsoll.toml --every 5s
  plimsoll top --admin unix:/run/plimsoll/admin --once")]
pub(crate) struct Args {
    #[command(flatten)]
    at: Where,

    /// The time between two pictures, from 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    every: Duration,

    /// The sort order of volumes
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,

    /// Print one picture as text, and end
    #[arg(long)]
    once: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let endpoint = args.at.endpoint()?;
    let first = endpoint.get("/figures")?;
    if args.once || !std::io::stdout().is_terminal() {
        block_on(Clock::real().sleep(args.every));
        let mut view = View::between(Some(&first), &endpoint.get("/figures")?);
        view.sort(args.sort, false);
        print!("{}", plain::lines(&view));
    } else {
        Top::new(endpoint, first, args).show()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn interval(text: &str) -> anyhow::Result<Duration> {
    let time = humantime::parse_duration(text).context("give a time such as 1s or 500ms")?;
    // The gate averages its figures over a second: a shorter interval shows noise.
    if !(Duration::from_millis(100)..=Duration::from_secs(3600)).contains(&time) {
        bail!("give a time from 100ms to 1h");
    }
    Ok(time)
}

/// The live view.
struct Top {
    endpoint: Endpoint,
    every: Duration,
    /// The previous answer, and the last one.
    before: Option<Snapshot>,
    now: Snapshot,
    /// Why there is no newer answer.
    lost: Option<String>,
    paused: bool,
    sort: Sort,
    reversed: bool,
}

impl Top {
    fn new(endpoint: Endpoint, first: Snapshot, args: &Args) -> Self {
        Self {
            endpoint,
            every: args.every,
            before: None,
            now: first,
            lost: None,
            paused: false,
            sort: args.sort,
            reversed: false,
        }
    }

    fn show(mut self) -> anyhow::Result<()> {
        let mut terminal = ratatui::try_init().context("open the terminal")?;
        let shown = self.until_quit(&mut terminal);
        ratatui::restore();
        shown
    }

    fn until_quit(&mut self, terminal: &mut ratatui::DefaultTerminal) -> anyhow::Result<()> {
        let clock = Clock::real();
        let mut looked = clock.now();
        loop {
            terminal.draw(|frame| frame.render_widget(self.screen(), frame.area()))?;
            let rest = self.every.saturating_sub(clock.now().since(looked));
            if event::poll(rest)? {
                if let Event::Key(key) = event::read()?
                    && key.kind == KeyEventKind::Press
                    && !self.press(key)
                {
                    return Ok(());
                }
            } else {
                looked = clock.now();
                if !self.paused {
                    self.look();
                }
            }
        }
    }

    /// Fetches a new answer; keeps the last one on errors.
    fn look(&mut self) {
        match self.endpoint.get("/figures") {
            Ok(now) => {
                self.before = Some(std::mem::replace(&mut self.now, now));
                self.lost = None;
            }
            Err(error) => self.lost = Some(super::chain(&error)),
        }
    }

    /// Handles a key; returns whether to go on.
    fn press(&mut self, key: KeyEvent) -> bool {
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('S') => self.reversed = !self.reversed,
            _ => {}
        }
        true
    }

    fn screen(&self) -> Screen {
        let mut view = View::between(self.before.as_ref(), &self.now);
        view.sort(self.sort, self.reversed);
        let state = match &self.lost {
            Some(why) => Some(why.clone()),
            None => self.paused.then(|| "paused".to_owned()),
        };
        Screen { view, at: self.endpoint.to_string(), sort: self.sort, state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top() -> Top {
        let at = Where { file: None, admin: Some("unix:/nowhere/at/all".into()) };
        let args = Args { at, every: Duration::from_secs(1), sort: Sort::Name, once: false };
        Top::new(args.at.endpoint().expect("a path"), Snapshot::default(), &args)
    }

    #[test]
    fn keys_end_hold_and_sort() {
        let mut top = top();
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        assert!(top.press(key(KeyCode::Char('p'))) && top.paused);
        assert!(top.press(key(KeyCode::Char('p'))) && !top.paused);
        assert!(top.press(key(KeyCode::Char('s'))));
        assert_ne!(top.sort, Sort::Name);
        for _ in 1..Sort::ALL.len() {
            top.press(key(KeyCode::Char('s')));
        }
        assert_eq!(top.sort, Sort::Name);
        assert!(top.press(key(KeyCode::Char('S'))) && top.reversed);
        assert!(top.press(key(KeyCode::Char('c'))));
        assert!(!top.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        assert!(!top.press(key(KeyCode::Char('q'))));
    }

    #[test]
    fn a_program_that_went_away_leaves_its_last_picture_and_the_reason() {
        let mut top = top();
        top.now.uptime_s = 17.0;
        top.look();
        assert_eq!(top.now.uptime_s, 17.0);
        assert!(top.screen().state.expect("a reason").contains("unix:/nowhere/at/all"));
    }

    #[test]
    fn intervals_have_bounds() {
        assert_eq!(interval("500ms").expect("a time"), Duration::from_millis(500));
        for wrong in ["1ms", "2h", "fast"] {
            interval(wrong).expect_err(wrong);
        }
    }
}
