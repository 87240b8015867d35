package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"isolane.dev/isolane/cli"
	"isolane.dev/isolane/hub/api"
	"isolane.dev/isolane/hub/apps"
	"isolane.dev/isolane/hub/up"
)

// The commands that ask a hub.

func whyCommand() *cobra.Command {
	a := admin{anywhere: true}
	cmd := &cobra.Command{
		Use:   "why NAMESPACE/NAME",
		Short: "Say why an App is where it is, and why not elsewhere",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.Count(args[0], "/") > 1 {
				return cli.Usage(fmt.Errorf("%q: expected an App, as NAMESPACE/NAME", args[0]))
			}
			c, err := a.config()
			if err != nil {
				return err
			}
			core, _, err := clients(c)
			if err != nil {
				return err
			}
			text, err := apps.Why(cmd.Context(), core, args[0])
			if err == nil {
				fmt.Fprint(cmd.OutOrStdout(), text)
			}
			return err
		},
	}
	a.flags(cmd)
	return cmd
}

func findingsCommand() *cobra.Command {
	a := admin{anywhere: true}
	cmd := &cobra.Command{
		Use:   "findings",
		Short: "List what audits of all hosts have found, by rule, the worst first",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.config()
			if err != nil {
				return err
			}
			_, client, err := clients(c)
			if err != nil {
				return err
			}
			return findings(cmd.Context(), client, cmd.OutOrStdout())
		},
	}
	a.flags(cmd)
	return cmd
}

func findings(ctx context.Context, client dynamic.Interface, out io.Writer) error {
	list, err := client.Resource(api.Resource("hosts")).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	hosts := map[api.Finding][]string{} // without CPUs, which differ between hosts
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
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
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

// kubectlCommands returns the kubectl commands that people at a hub need first.
func kubectlCommands() []*cobra.Command {
	var all []*cobra.Command
	for verb, short := range map[string]string{
		"get":      "List sites, hosts, apps, instances",
		"describe": "Show one of them, with its status",
		"apply":    "Declare what a file says: -f FILE",
		"delete":   "Delete what a file or a name says",
	} {
		all = append(all, &cobra.Command{
			Use: verb, Short: short, DisableFlagParsing: true, Args: cobra.ArbitraryArgs,
			Long: short + ".\nStarts kubectl with these arguments, for the hub of this machine or that of KUBECONFIG.",
			RunE: func(_ *cobra.Command, args []string) error { return kubectl(append([]string{verb}, args...)) }})
	}
	return all
}

// kubectl replaces this process by kubectl.
func kubectl(args []string) error {
	at, err := cli.Program("kubectl", packaged)
	if err != nil {
		return cli.Hint(errors.New("kubectl: expected it beside isolane-hub, or on the path"),
			"install the package isolane-hub-programs, or use any other client of the Kubernetes API")
	}
	if err = toHub(up.Options{Dir: hubDir}.Kubeconfig(), args); err != nil {
		return err
	}
	return syscall.Exec(at, append([]string{"kubectl"}, args...), os.Environ())
}

// toHub points kubectl at the hub of this machine, unless the caller names another. Without a kubeconfig,
// kubectl would try localhost:8080 and complain about that.
func toHub(own string, args []string) error {
	if slices.ContainsFunc(args, func(arg string) bool {
		return arg == "--help" || arg == "-h" || strings.HasPrefix(arg, "--kubeconfig")
	}) {
		return nil
	}
	config := cmp.Or(os.Getenv("KUBECONFIG"), own)
	var missing error
	for _, file := range filepath.SplitList(config) {
		_, err := os.Stat(file)
		if err == nil {
			return os.Setenv("KUBECONFIG", config)
		}
		missing = err
	}
	return cli.Usage(
		fmt.Errorf("KUBECONFIG: expected how to reach a hub, as isolane-hub up prints it: %w", missing))
}
