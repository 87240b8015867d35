package row

import (
	"strings"
	"testing"
)

const head = "scenario,config,metric,unit,value,qualifier\n"

func TestBadInput(t *testing.T) {
	row := "web,a,rtt_p50,us,20,\n"
	for name, test := range map[string]struct{ table, want string }{
		"empty":      {"", "line 1: expected a header with scenario, config, metric, unit, value"},
		"no rows":    {head, "line 2: expected a row below the header"},
		"no header":  {row, `line 1, column 1: "web" is no column: expected a header with`},
		"misspelt":   {"scenario,config,metric,unit,valeu\n", `line 1, column 29: "valeu" is no column`},
		"twice":      {"scenario,config,metric,unit,value,unit\n", "line 1, column 35: a second column unit"},
		"no metric":  {"scenario,config,unit,value\n", "line 1: no column metric: expected a header with"},
		"ragged":     {head + row + "web,a,rtt_p50\n", "line 3, column 7: 3 fields, expected 6 as in the header"},
		"unit":       {head + "web,a,rtt_p50,furlongs,20,\n", `line 2, column 15: unit: "furlongs": expected a unit such as us`},
		"long unit":  {head + "web,a,rtt_p50,us" + strings.Repeat("/W", 1<<20) + ",20,\n", `line 2, column 15: unit: "us/W/W`},
		"no unit":    {head + "web,a,rtt_p50,,20,\n", `line 2, column 15: unit: "": expected a unit`},
		"NaN":        {head + "web,a,rtt_p50,us,NaN,\n", `line 2, column 18: value: "NaN": expected a plain decimal number`},
		"infinite":   {head + "web,a,rtt_p50,us,1e999,\n", `line 2, column 18: value: "1e999": is too large`},
		"hex":        {head + "web,a,rtt_p50,us,0x10,\n", `line 2, column 18: value: "0x10": expected a plain`},
		"thousands":  {head + "web,a,rtt_p50,us,\"1,000\",\n", `line 2, column 18: value: "1,000": expected a plain`},
		"percent":    {head + "web,a,hit_rate,percent,99%,\n", `value: "99%": expected a plain`},
		"negative":   {head + "web,a,rtt_p50,us,-3,\n", `line 2, column 18: value: "-3": expected no negative rtt_p50`},
		"qualifier":  {head + "web,a,rtt_p50,us,3,roughly\n", `line 2, column 20: qualifier: "roughly": expected exact, approx`},
		"quote":      {head + "web,a,\"rtt_p50,us,3,\n", `line 2, column `},
		"bare quote": {head + "web,a\",rtt_p50,us,3,\n", `line 2, column 6: bare " in non-quoted-field`},
		"no UTF-8":   {head + "web,a\xff,rtt_p50,us,3,\n", "line 2, column 6: expected UTF-8"},
		"no name":    {head + "web,a,,us,3,\n", "line 2, column 7: metric: expected a name"},
		"huge":       {head + strings.Repeat(row, 1<<20), "more than 16 MiB: expected a published table"},
		"conditions": {head + "web," + strings.Repeat("a;", mostParts+1) + ",rtt_p50,us,3,\n", "line 2, column 5: config: 21 conditions, expected 20 at most"},
		"long":       {head + strings.Repeat(row, mostRows+1), "line 1002: more than 1000 rows"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(strings.NewReader(test.table))
			if err == nil || !strings.HasPrefix(err.Error(), test.want) && !strings.Contains(err.Error(), test.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, expected %s", err, test.want)
			}
		})
	}
}

func TestGoodInput(t *testing.T) {
	for name, table := range map[string]string{
		"CRLF":        strings.ReplaceAll(head+"web,a,rtt_p50,us,20,\n", "\n", "\r\n"),
		"BOM":         "\ufeff" + head + "web,a,rtt_p50,us,20,\n",
		"UTF-8":       head + "网络,größer; 負荷=高,rtt_p50,µs,20,\n",
		"order":       "value,unit,metric,config,scenario\n20,us,rtt_p50,a,web\n",
		"difference":  head + "web,a vs b,throughput_change,percent,-3,\n",
		"no newline":  head + "web,a,rtt_p50,us,20,",
		"quoted line": head + "web,\"a\nb\",rtt_p50,us,20,\n",
		"exponent":    head + "web,a,requests,count,1e6,\n",
		"text":        head + "web,a,kernel,version,NaN,\n",
	} {
		if rows, err := Read(strings.NewReader(table)); err != nil || len(rows) != 1 {
			t.Errorf("%s: %d rows, %v", name, len(rows), err)
		}
	}
}
