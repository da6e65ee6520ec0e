//! A report as one page for readers: no scripts, no external resources, light and dark.

use std::fmt::Write;

use super::plot::Key;
use super::table::number;
use super::{Check, Plot, Report, Table, plot};

const STYLE: &str = include_str!("page.css");

/// The whole page.
pub(super) fn page(report: &Report) -> anyhow::Result<String> {
    let mut body = String::new();
    // The probe is a command of its own, not a bench.
    let command = if report.bench == "probe" { "" } else { "bench " };
    let title = format!("plimsoll {command}{}", escape(&report.bench));
    write!(body, "<h1>{title}</h1>")?;
    let facts = [
        ("profile", report.profile.name().to_owned()),
        ("seed", report.seed.to_string()),
        ("commit", report.commit.clone()),
        ("machine", report.machine.clone()),
    ];
    body.push_str("<dl>");
    for (name, fact) in facts {
        write!(body, "<dt>{name}</dt><dd>{}</dd>", escape(&fact))?;
    }
    body.push_str("</dl>\n");
    checks(&mut body, &report.checks)?;
    for plot in &report.plots {
        figure(&mut body, plot)?;
    }
    for table in Table::all(report) {
        figures(&mut body, &table)?;
    }
    list(&mut body, "Notes", &report.notes)?;
    list(&mut body, "History", &report.history)?;
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n{body}</body>\n</html>\n"
    ))
}

fn checks(body: &mut String, checks: &[Check]) -> anyhow::Result<()> {
    if checks.is_empty() {
        return Ok(());
    }
    body.push_str("<h2>Checks</h2>\n<table><tr><th>row<th>what<th class=n>value<th class=n>band<th>holds</tr>\n");
    for Check { id, what, value, band: [low, high], holds } in checks {
        let (class, holds) = if *holds { ("yes", "yes") } else { ("no", "NO") };
        let (id, what, value) = (escape(id), escape(what), number(*value));
        let band = format!("{} to {}", number(Some(*low)), number(Some(*high)));
        writeln!(
            body,
            "<tr><td>{id}<td>{what}<td class=n>{value}<td class=n>{band}<td class={class}>{holds}</tr>"
        )?;
    }
    body.push_str("</table>\n");
    Ok(())
}

fn figure(body: &mut String, plot: &Plot) -> anyhow::Result<()> {
    let (title, svg) = (escape(&plot.title), plot::svg(plot)?);
    write!(body, "<figure><figcaption>{title}</figcaption>\n<ul class=keys>")?;
    for Key { name, class, colour } in plot::keys(plot) {
        write!(body, "<li><i class={class} style=\"color: {colour}\"></i>{}", escape(name))?;
    }
    writeln!(body, "</ul>\n{svg}</figure>")?;
    Ok(())
}

fn figures(body: &mut String, table: &Table) -> anyhow::Result<()> {
    write!(body, "<h2>{}</h2>\n<div class=wide><table><tr><th>", escape(&table.title))?;
    for column in &table.columns {
        write!(body, "<th class=n>{}", escape(column))?;
    }
    body.push_str("</tr>\n");
    for (case, values) in &table.lines {
        write!(body, "<tr><td>{}", escape(case))?;
        for value in values {
            write!(body, "<td class=n>{}", number(*value))?;
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</table></div>\n");
    Ok(())
}

fn list(body: &mut String, title: &str, lines: &[String]) -> anyhow::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    write!(body, "<h2>{title}</h2>\n<ul>")?;
    for line in lines {
        write!(body, "<li>{}", escape(line))?;
    }
    body.push_str("</ul>\n");
    Ok(())
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
