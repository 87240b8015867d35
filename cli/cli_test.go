package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"isolane.dev/isolane/terminal"
)

// Every cobra error that our commands can cause is in our words. If a later cobra words one differently, this
// fails.
func TestPlain(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"one", "expected 1 argument, found 0"},
		{"one a b", "expected 1 argument, found 2"},
		{"two a", "expected 2 arguments, found 1"},
		{"some", "expected at least 1 argument, found 0"},
		{"most a b", "expected 1 argument, found 2"},
		{"between", "expected 1 to 2 arguments, found 0"},
		{"none a", `none: "a": expected no argument`},
		{"group", "expected --lane or --cpus"},
		{"group --cpus 1 --lane a", "--cpus does not go with --lane"},
		{"required", "expected --lane"},
	} {
		root := &cobra.Command{Use: "isolane", SilenceErrors: true, SilenceUsage: true}
		for name, args := range map[string]cobra.PositionalArgs{"one": cobra.ExactArgs(1), "two": cobra.ExactArgs(2),
			"some": cobra.MinimumNArgs(1),
			"most": cobra.MaximumNArgs(1), "between": cobra.RangeArgs(1, 2), "none": cobra.NoArgs, "group": nil,
			"required": nil} {
			cmd := &cobra.Command{Use: name, Args: args, RunE: func(*cobra.Command, []string) error { return nil }}
			cmd.Flags().String("lane", "", "")
			cmd.Flags().String("cpus", "", "")
			switch name {
			case "group":
				cmd.MarkFlagsOneRequired("lane", "cpus")
				cmd.MarkFlagsMutuallyExclusive("lane", "cpus")
			case "required":
				if err := cmd.MarkFlagRequired("lane"); err != nil {
					t.Fatal(err)
				}
			}
			root.AddCommand(cmd)
		}
		root.SetArgs(strings.Fields(c.args))
		if err := root.Execute(); err == nil || plain(err).Error() != c.want {
			t.Errorf("%s: %v: %v, want %s", c.args, err, plain(err), c.want)
		}
	}
}

// A wrong flag says what it expects, and a flag of an unknown command says which command may be meant.
func TestFlags(t *testing.T) {
	for args, want := range map[string]string{
		"aply -f x":         `unknown command "aply", did you mean apply?`,
		"-f x aply":         "unknown shorthand flag: 'f' in -f",
		"apply --for 5":     `--for "5": expected a number with its unit, such as 50us, 30s or 2h`,
		"apply --cpus two":  `--cpus "two": expected a whole number`,
		"apply --nothing x": "unknown flag: --nothing",
	} {
		cmd := &cobra.Command{Use: "apply", RunE: func(*cobra.Command, []string) error { return nil }}
		cmd.Flags().Duration("for", 0, "")
		cmd.Flags().Int("cpus", 0, "")
		root := Root(&cobra.Command{Use: "isolane"}, cmd)
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestFit(t *testing.T) {
	text := fit("Flags:\n      --cap-add strings   capabilities to leave to the command beside the usual ones\n"+
		"A paragraph that is as wide as the one above, and a bit more than that.\n", terminal.Terminal{Columns: 60})
	want := "Flags:\n      --cap-add strings   capabilities to leave to the\n                          command beside the usual ones\n" +
		"A paragraph that is as wide as the one above, and a bit more\nthan that.\n"
	if text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
}
