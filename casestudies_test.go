package isolane_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"isolane.dev/isolane/claims/rules"
	"isolane.dev/isolane/prove"
	"isolane.dev/isolane/prove/drivers"
	"isolane.dev/isolane/report/answers"
	"isolane.dev/isolane/results"
	"isolane.dev/isolane/test/golden"
)

// The case studies are answered by the stored sessions, as isolane report --answers prints it.
func TestCaseStudies(t *testing.T) {
	table, err := rules.AuditFile(t.Context(), "claims/testdata/published.csv")
	if err != nil {
		t.Fatal(err)
	}
	page := answers.Page{Table: table}
	if page.Scenarios, err = prove.Own(drivers.Kinds()); err != nil {
		t.Fatal(err)
	}
	sessions, err := filepath.Glob("docs/case-studies/*")
	if err != nil || len(sessions) == 0 {
		t.Fatal("docs/case-studies: expected directories with results: ", err)
	}
	for _, dir := range sessions {
		s, rerr := results.Read(dir)
		if rerr == nil {
			rerr = page.Add(dir, s)
		}
		if rerr != nil {
			t.Fatal(rerr)
		}
	}
	var made bytes.Buffer
	if err = page.Write(&made); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "docs/case-studies.md", made.Bytes())
}
