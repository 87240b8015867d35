package rules

import (
	"os"
	"strings"
	"testing"
)

func FuzzAudit(f *testing.F) {
	data, err := os.ReadFile("../testdata/published.csv")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(data[:4096]))
	for _, rows := range planted() {
		bad, good := variants(rows)
		f.Add(bad)
		f.Add(good)
	}
	f.Fuzz(func(t *testing.T, table string) {
		r, err := Audit(t.Context(), strings.NewReader(table))
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		for _, finding := range r.Findings {
			for _, line := range append(finding.Sum, finding.Conclusion) {
				if len(finding.Figures) == 0 || line == "" || strings.Contains(line, "%!") || strings.Contains(line, "NaN") &&
					!strings.Contains(table, "NaN") {
					t.Errorf("%+v", finding)
				}
			}
		}
	})
}
