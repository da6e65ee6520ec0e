use super::*;

fn report() -> Report {
    let mut report = Report::new("provider", &Options::default());
    report.row("B01", "second 0", "simulated", 1000.0, "fast requests");
    report.row("B01", "second 0", "expected", 1000.0, "fast requests");
    report.runs("B02", "1 loop", "simulated", &[1.0, 1.2, 1.1], "ms");
    report.check("B01", "largest <deviation>", 1.5, [0.0, 5.0]);
    report.check("B02", "not measured", f64::NAN, [0.0, 0.05]);
    report.plots.push(Plot {
        title: "a & b".into(),
        x: "second".into(),
        y: "requests".into(),
        curves: [Stroke::Line, Stroke::Dashes, Stroke::Dots, Stroke::Bars]
            .map(|stroke| Curve {
                name: "curve".into(),
                stroke,
                points: vec![(0.0, 1.0), (1.0, 3.0)],
            })
            .into(),
        marks: vec![(0.5, "half <way>".into())],
        ..Plot::default()
    });
    report
}

#[test]
fn the_json_has_the_fields_of_the_design() {
    let json: serde_json::Value = serde_json::to_value(report()).expect("it serialises");
    for field in ["bench", "profile", "seed", "commit", "machine", "rows", "checks", "history"] {
        assert!(json.get(field).is_some(), "{field}");
    }
    assert_eq!(json["profile"], "short");
    let row = serde_json::json!({
        "id": "B01", "case": "second 0", "scheme": "simulated", "value": 1000.0,
        "unit": "fast requests",
    });
    assert_eq!(json["rows"][0], row);
    let checks = serde_json::json!([
        { "id": "B01", "what": "largest <deviation>", "value": 1.5, "band": [0.0, 5.0], "holds": true },
        { "id": "B02", "what": "not measured", "value": null, "band": [0.0, 0.05], "holds": false },
    ]);
    assert_eq!(json["checks"], checks);
    assert!(!report().holds());
}

#[test]
fn the_page_refers_to_nothing_outside() {
    let page = html::page(&report()).expect("it draws");
    for outside in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("largest &lt;deviation&gt;") && page.contains("a &amp; b"));
    assert_eq!(page.matches("<svg").count(), 1);
    assert!(
        !page.contains("#000000") && !page.contains("#FFFFFF"),
        "colours that night would hide"
    );
}

#[test]
fn the_table_puts_schemes_side_by_side() {
    let text = table::tables(&report());
    let line = text.lines().find(|line| line.contains("second 0")).expect("the case has a line");
    let cells = line.trim_matches('│').split('┆').map(str::trim);
    assert_eq!(cells.collect::<Vec<_>>(), ["second 0", "1000", "1000"]);
    assert!(text.contains("simulated, 95 % from"));
    assert!(text.contains("NO"));
}

#[test]
fn files_that_cannot_be_written_are_named() {
    let missing = tempfile::tempdir().expect("a directory").path().join("gone/report.json");
    let error = report().write_json(&missing).expect_err("its directory is gone");
    assert!(error.to_string().contains("gone/report.json"));
}

#[test]
fn tables_for_people_stand_where_the_rows_would() {
    let mut report = report();
    report.tables.push(Table {
        title: "workload".into(),
        columns: vec!["op/s".into()],
        lines: vec![("A".into(), vec![Some(7.0)])],
    });
    for text in [table::tables(&report), html::page(&report).expect("it draws")] {
        assert!(text.contains("workload") && !text.contains("second 0"), "{text}");
    }
    let json = serde_json::to_value(&report).expect("it serialises");
    assert!(json.get("tables").is_none() && json["rows"].as_array().is_some_and(|r| r.len() == 5));
}

#[test]
fn axes_of_powers_draw_what_has_a_logarithm() {
    let mut report = report();
    report.plots[0].x_axis = Axis::Nines;
    report.plots[0].y_axis = Axis::Log;
    report.plots[0].curves = vec![Curve {
        name: "latency".into(),
        stroke: Stroke::Line,
        points: vec![
            (0.0, 0.0),
            (0.5, 12.0),
            (0.99, 450.0),
            (0.999_991, 20_000.0),
            (1.0, 30_000.0),
        ],
    }];
    let page = html::page(&report).expect("it draws");
    for label in ["10", "100", "1000", "10000", "0", "90", "99", "99.9", "99.9999"] {
        assert!(page.contains(&format!(">\n{label}\n</text>")), "{label} in {page}");
    }
    for wrong in ["NaN", "inf", ">\n1000000\n</text>"] {
        assert!(!page.contains(wrong), "{wrong}");
    }
}

#[test]
fn a_point_that_is_no_number_is_a_gap() {
    let lines = |points: Vec<(f64, f64)>| {
        let mut report = report();
        let curve = Curve { name: "a".into(), stroke: Stroke::Line, points };
        report.plots[0].curves = vec![curve];
        let page = html::page(&report).expect("it draws");
        assert!(!page.contains("NaN"), "{page}");
        page.matches("stroke-width=\"2\"").count()
    };
    assert_eq!(lines(vec![(0.0, 1.0), (1.0, 2.0), (2.0, 2.0), (3.0, 1.0)]), 1);
    assert_eq!(lines(vec![(0.0, 1.0), (1.0, 2.0), (f64::NAN, 0.0), (2.0, 2.0), (3.0, 1.0)]), 2);
}
