package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/apps"
	"isolane.dev/isolane/lanes"
)

// The commands that ask a hub.

func why(ctx context.Context, _ lanes.Options, args []string) error {
	app, c, _, err := admin("why", args, "an App, as NAMESPACE/NAME", new(string))
	if err != nil {
		return err
	}
	core, _, err := clients(c)
	if err != nil {
		return err
	}
	text, err := apps.Why(ctx, core, app)
	if err == nil {
		fmt.Print(text)
	}
	return err
}

// findings prints a line for each rule that some host breaks, with the hosts; the worst first.
func findings(ctx context.Context, _ lanes.Options, args []string) error {
	_, c, _, err := admin("findings", args, "", new(string))
	if err != nil {
		return err
	}
	_, client, err := clients(c)
	if err != nil {
		return err
	}
	list, err := client.Resource(api.Resource("hosts")).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	hosts := map[api.Finding][]string{} // without CPUs: they differ
	for n := range list.Items {
		h, err := api.From[api.Host](&list.Items[n])
		if err != nil {
			return err
		}
		for _, f := range h.Status.Findings {
			if f.CPUs = ""; !slices.Contains(hosts[f], h.Name) {
				hosts[f] = append(hosts[f], h.Name)
			}
		}
	}
	worst := []string{"fault", "warn", "info"}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "SEVERITY\tRULE\tHOSTS\tWHAT")
	for _, f := range slices.SortedFunc(maps.Keys(hosts), func(a, b api.Finding) int {
		return cmp.Or(slices.Index(worst, a.Severity)-slices.Index(worst, b.Severity),
			len(hosts[b])-len(hosts[a]), strings.Compare(a.Rule, b.Rule))
	}) {
		all := hosts[f]
		who := strings.Join(all[:min(5, len(all))], ", ")
		if len(all) > 5 {
			who += fmt.Sprintf(" and %d more", len(all)-5)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", f.Severity, f.Rule, who, f.Title)
	}
	return w.Flush()
}
