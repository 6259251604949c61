package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// errSignal is why the context of a command ended when a signal did it.
var errSignal = errors.New("interrupted")

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the process
		<-signals
		cancel(errSignal)
		<-signals
		os.Exit(exitFailed)
	}()
	os.Exit(Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}.Run(ctx, os.Args[1:]))
}

// Program is the whole command. Its Run may be called at once for several
// commands of one process.
type Program struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// commands is the grammar of the command line.
type commands struct {
	Serve       serveCmd       `cmd:"" help:"Run the bridge server."`
	Demo        demoCmd        `cmd:"" help:"Run the demo provider: connect a few example tools to a bridge."`
	Run         runCmd         `cmd:"" help:"Offer a stdio MCP server on a bridge: mcpbridge run --url URL -- COMMAND ARGS."`
	Tools       toolsCmd       `cmd:"" help:"List the tools of a bridge."`
	Call        callCmd        `cmd:"" help:"Call a tool of a bridge and print its result."`
	Bridge      bridgeCmd      `cmd:"" help:"Create, list, show and delete bridges; approve changed tools."`
	ConfigFor   configForCmd   `cmd:"" help:"Print the configuration with which a client uses a bridge."`
	Backup      backupCmd      `cmd:"" help:"Write a running server's store to a file, as it is at one moment."`
	Restore     restoreCmd     `cmd:"" help:"Make a backup the store of a server that does not run."`
	Check       checkCmd       `cmd:"" help:"Check the file of a backup or store. Exit 1 if it is damaged."`
	Token       tokenCmd       `cmd:"" help:"Create, list, rotate and revoke a bridge's tokens."`
	Pair        pairCmd        `cmd:"" help:"Make a short code that a provider swaps for a token of its own."`
	Key         keyCmd         `cmd:"" help:"Create, list, rotate and revoke REST keys."`
	Tenant      tenantCmd      `cmd:"" help:"Create, list and delete tenants."`
	Completion  completionCmd  `cmd:"" help:"Print a script by which a shell completes commands and flags."`
	Healthcheck healthcheckCmd `cmd:"" help:"Exit 0 if the server is ready. For containers."`
	Version     versionCmd     `cmd:"" help:"Print version, commit and Go version."`
	Supervise   superviseCmd   `cmd:"" hidden:"" help:"Run a command for mcpbridge run."`
}

// usageError is one of the caller's making: exit status 2.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// statusError is the exit status of a command that a command ran. It tells nothing.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Run runs one command to its end and returns its exit status. It ends early,
// in good order, when ctx does. Flags that args do not give come from the
// environment.
func (p Program) Run(ctx context.Context, args []string) (status int) {
	type exit int
	defer func() { // kong calls Exit in the middle of parsing, after --help
		switch r := recover().(type) {
		case nil:
		case exit:
			status = int(r)
		default:
			panic(r)
		}
	}()
	var grammar commands
	parser, err := kong.New(&grammar,
		kong.Name("mcpbridge"),
		kong.Description("Gives MCP clients one URL for the tools of providers that dial out.\n\n"+
			"Every flag may be given as the environment variable beside it."),
		kong.Writers(p.Stdout, p.Stderr),
		kong.Exit(func(code int) { panic(exit(code)) }),
		kong.DefaultEnvars("MCPBRIDGE"),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		defaults(),
		kong.TypeMapper(byteSizeType, kong.MapperFunc(decodeByteSize)),
		kong.Bind(&p),
		kong.BindTo(ctx, (*context.Context)(nil)),
	)
	if err != nil {
		panic(err) // the grammar itself is wrong
	}
	if len(args) > 0 && args[0] == completeWord {
		p.complete(parser.Model.Node, args[1:])
		return exitOK
	}
	command, err := parser.Parse(args)
	if err != nil {
		if parsed, ok := errors.AsType[*kong.ParseError](err); ok {
			err = parsed.Unwrap()
		}
		fmt.Fprintf(p.Stderr, "mcpbridge: %v\nRun \"mcpbridge --help\" or \"mcpbridge COMMAND --help\".\n", err)
		return exitUsage
	}
	err = command.Run()
	if status, ok := errors.AsType[statusError](err); ok {
		return int(status)
	}
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, new(usageError)):
		fmt.Fprintf(p.Stderr, "mcpbridge: %v\n", err)
		return exitUsage
	default:
		fmt.Fprintf(p.Stderr, "mcpbridge: %v\n", err)
		return exitFailed
	}
}
