//! The sign of zero, from a line to each kind of answer.

use serve::http::Settings;

use crate::endpoint::Endpoint;

#[test]
fn zero_keeps_its_sign_in_json_and_csv() {
    let endpoint = Endpoint::new(Settings::default());
    assert_eq!(endpoint.write("db=db", "m f=-0.0 1\nm f=0.0 2\nm f=-0 3\nm f=1.5 4\n").status, 204);
    let answer = endpoint.query("SELECT f FROM m");
    let values = answer[0]["values"].as_array().expect("rows");
    let signs: Vec<bool> =
        values.iter().map(|row| row[1].as_f64().expect("a float").is_sign_negative()).collect();
    assert_eq!(signs, [true, false, true, false], "{answer}");
    let answer = endpoint.get("/api/points?db=db&measurement=m&field=f&format=csv");
    assert_eq!(answer.status, 200, "{answer:?}");
    let values: Vec<&str> =
        answer.body.lines().skip(1).filter_map(|line| line.rsplit(',').next()).collect();
    assert_eq!(values, ["-0.0", "0.0", "-0.0", "1.5"]);
    for function in ["first", "min", "last"] {
        let answer = endpoint.query(&format!("SELECT {function}(f) FROM m WHERE time < 2"));
        let value = answer[0]["values"][0][1].as_f64().expect("a float");
        assert!(value == 0.0 && value.is_sign_negative(), "{function}: {answer}");
    }
}
