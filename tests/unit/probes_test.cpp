// SPDX-License-Identifier: Apache-2.0
// `hostrange-bpf probes` as users run it.
#include <elf.h>

#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/bpf/harness.h"
#include "tests/matrix.h"

namespace hostrange::test {
namespace {

const std::string kProgram = "matrix_gcc_O2";

struct Listed {
    int status;
    std::string output, error;
    nlohmann::json json() const { return nlohmann::json::parse(output); }
};

Listed list(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {profiler_path(), "probes"});
    Child child(arguments);
    const int status = child.finish();
    return {status, child.output(), child.error()};
}

Listed list_json(const std::string& file, std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--json", "--probe-map", matrix_map(), "--file", file});
    return list(more);
}

void run(const std::string& command) {
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

// Range, site, offset of each site.
std::vector<std::string> sites(const nlohmann::json& listing) {
    std::vector<std::string> result;
    for (const nlohmann::json& file : listing.at("files"))
        for (const nlohmann::json& site : file.at("sites"))
            result.push_back(site.at("range").get<std::string>() + " " + site.at("site").get<std::string>() + " " +
                             std::to_string(site.at("offset").get<std::uint64_t>()));
    return result;
}

// A stripped copy in a folder of its own, and the debug file that belongs to it.
struct Stripped {
    std::string folder, program, debug_file;
};
Stripped strip(const std::string& name) {
    Stripped result;
    result.folder = scratch_file(name);
    std::filesystem::create_directory(result.folder);
    result.program = result.folder + "/" + kProgram;
    result.debug_file = result.folder + "/debug";
    const std::string original = matrix_program("gcc_O2");
    run("objcopy --only-keep-debug " + original + " " + result.debug_file);
    run("objcopy --strip-all " + original + " " + result.program);
    return result;
}

TEST(Probes, ListsEverySiteOfEveryRange) {
    const Listed listed = list_json(matrix_program("gcc_O2"));
    ASSERT_EQ(listed.status, 0) << listed.error;
    const nlohmann::json all = listed.json();
    EXPECT_TRUE(all.at("not_found").empty()) << all.at("not_found").dump();
    const nlohmann::json& file = all.at("files").at(0);
    EXPECT_EQ(file.at("debug_info"), true);
    EXPECT_EQ(file.at("inlined").at(0).at("placed"), file.at("inlined").at(0).at("total"));
    EXPECT_GT(file.at("sites").size(), 64u);
    for (const nlohmann::json& site : file.at("sites"))
        for (const char* key : {"kind", "function", "symbol", "instruction", "class", "labels", "ends"})
            EXPECT_TRUE(site.contains(key)) << key;
}

TEST(Probes, PrintsAlignedLines) {
    const Listed listed = list({"--probe-map", matrix_map(), "--file", matrix_program("gcc_O2"), "--range", "leaf"});
    ASSERT_EQ(listed.status, 0) << listed.error;
    std::istringstream lines(listed.output);
    std::vector<std::size_t> columns;
    for (std::string line; std::getline(lines, line);) {
        if (line.empty() || line[0] == '#') continue;
        columns.push_back(line.rfind("  ") + 2);
        EXPECT_TRUE(line.starts_with("RANGE") || line.starts_with("leaf ")) << line;
    }
    ASSERT_GE(columns.size(), 3u) << listed.output;
    for (const std::size_t column : columns) EXPECT_EQ(column, columns.front());
}

TEST(Probes, SaysHowEndsAreSeenAndWhy) {
    const auto ends = [](std::vector<std::string> arguments) {
        return list_json(matrix_program("gcc_O2"), std::move(arguments))
            .json()
            .at("files")
            .at(0)
            .at("sites")
            .at(0)
            .at("ends");
    };
    EXPECT_EQ(ends({}), "ret: exceptions may cross it");
    EXPECT_EQ(ends({"--return-probes=uretprobe"}), "uretprobe: --return-probes says so");
}

// Entries that slide past endbr64 say so; ends say what kind of end they are.
TEST(Probes, SaysWhyEachSiteStandsThere) {
    const auto reasons = [](const std::string& build) {
        std::map<std::string, std::set<std::string>> by_site;
        const nlohmann::json listing = list_json(matrix_program(build)).json();
        for (const nlohmann::json& site : listing.at("files").at(0).at("sites")) {
            by_site[site.at("site")].insert(site.at("why"));
            if (site.at("site") != "entry") continue;
            EXPECT_EQ(site.at("why") == "first_instruction", site.at("offset") == site.at("function_offset"));
        }
        return by_site;
    };
    EXPECT_TRUE(reasons("gcc_O2").at("entry").count("first_instruction"));
    EXPECT_TRUE(reasons("gcc_O2_cf").at("entry").count("cheapest_of_entry"));
    EXPECT_EQ(reasons("gcc_O2").at("ret"), std::set<std::string>{"returns_here"});
}

TEST(Probes, ReadsSeparateDebugFiles) {
    const std::vector<std::string> expected = sites(list_json(matrix_program("gcc_O2")).json());

    // None: nothing is exported, so nothing is known.
    const Stripped alone = strip("alone");
    const Listed nothing = list_json(alone.program);
    EXPECT_EQ(nothing.status, 67) << nothing.output;
    EXPECT_EQ(nothing.json().at("files").at(0).at("stripped"), true);

    // By its build-id, in a folder that is named.
    const std::string id = nothing.json().at("files").at(0).at("build_id");
    const std::string place = alone.folder + "/store/.build-id/" + id.substr(0, 2);
    std::filesystem::create_directories(place);
    std::filesystem::copy_file(alone.debug_file, place + "/" + id.substr(2) + ".debug");
    EXPECT_EQ(sites(list_json(alone.program, {"--debug-dir", alone.folder + "/store"}).json()), expected);

    // By a link, beside it and in .debug.
    const Stripped linked = strip("linked");
    run("cd " + linked.folder + " && objcopy --add-gnu-debuglink=debug " + kProgram);
    const nlohmann::json beside = list_json(linked.program).json();
    EXPECT_EQ(sites(beside), expected);
    EXPECT_EQ(beside.at("files").at(0).at("debug_file"), linked.debug_file);
    std::filesystem::create_directory(linked.folder + "/.debug");
    std::filesystem::rename(linked.debug_file, linked.folder + "/.debug/debug");
    EXPECT_EQ(sites(list_json(linked.program).json()), expected);

    // One that was changed since is none.
    std::ofstream(linked.folder + "/.debug/debug", std::ios::app) << "changed";
    EXPECT_EQ(list_json(linked.program).status, 67);
}

TEST(Probes, AsksDebuginfodIfTheUserNamesAServer) {
    const Stripped alone = strip("served");
    const std::string id = list_json(alone.program).json().at("files").at(0).at("build_id");
    const std::string place = alone.folder + "/buildid/" + id;
    std::filesystem::create_directories(place);
    std::filesystem::copy_file(alone.debug_file, place + "/debuginfo");
    setenv("DEBUGINFOD_CACHE_PATH", (alone.folder + "/cache").c_str(), 1);
    setenv("DEBUGINFOD_URLS", ("file://" + alone.folder).c_str(), 1);
    const Listed listed = list_json(alone.program);
    unsetenv("DEBUGINFOD_URLS");
    EXPECT_EQ(sites(listed.json()), sites(list_json(matrix_program("gcc_O2")).json()));
    EXPECT_EQ(list_json(alone.program).status, 67);
}

TEST(Probes, TakesPlacesThatAreGivenByHand) {
    const nlohmann::json listing = list_json(matrix_program("gcc_O2_nodebug")).json();
    std::uint64_t offset = 0, point = 0;
    std::string instruction;
    for (const nlohmann::json& site : listing.at("files").at(0).at("sites"))
        if (site.at("range") == "recursive" && site.at("site") == "entry") {
            offset = site.at("function_offset");
            point = site.at("offset");
            instruction = site.at("instruction");
        }
    ASSERT_NE(offset, 0u);
    const std::string map = scratch_file("places.toml");
    std::ofstream(map) << "version = 1\n[targets.t]\nfiles = ['matrix_*']\n"
                       << "[[ranges]]\nname = 'here'\ntarget = 't'\nplaces = [{ offset = " << offset << " }]\n"
                       << "[[ranges]]\nname = 'other'\ntarget = 't'\nplaces = [{ offset = " << offset
                       << ", instruction = 'int3' }]\n"
                       << "[[ranges]]\nname = 'middle'\ntarget = 't'\nplaces = [{ offset = " << offset + 1 << " }]\n"
                       << "[[ranges]]\nname = 'outside'\ntarget = 't'\nplaces = [{ offset = 0x7fffffff }]\n"
                       << "[[ranges]]\nname = 'points'\ntarget = 't'\nbegin = [{ offset = " << point
                       << ", instruction = '" << instruction << "' }]\nend = [{ return = '^shapes::recursive' }]\n";
    const Listed listed = list({"--json", "--probe-map", map, "--file", matrix_program("gcc_O2_nodebug")});
    ASSERT_EQ(listed.status, 0) << listed.error;
    std::map<std::string, std::string> kinds;
    const nlohmann::json all = listed.json();
    for (const nlohmann::json& site : all.at("files").at(0).at("sites"))
        kinds[site.at("range")] += site.at("site").get<std::string>() + " ";
    EXPECT_EQ(kinds.size(), 2u) << listed.output;
    EXPECT_TRUE(kinds["here"].starts_with("entry ret ")) << kinds["here"];
    EXPECT_TRUE(kinds["points"].starts_with("end ") && kinds["points"].ends_with("begin ")) << kinds["points"];
    std::map<std::string, std::string> reasons;
    for (const nlohmann::json& one : all.at("files").at(0).at("unavailable"))
        reasons[one.at("range")] = one.at("reason");
    EXPECT_NE(reasons["other"].find("and not 'int3'"), std::string::npos) << reasons["other"];
    EXPECT_NE(reasons["middle"].find("no function begins there"), std::string::npos) << reasons["middle"];
    EXPECT_NE(reasons["outside"].find("no code at this offset"), std::string::npos);
}

TEST(Probes, NamesWhatComesNear) {
    const std::string map = scratch_file("near.toml");
    std::ofstream(map) << "version = 1\n[targets.t]\nfiles = ['matrix_*']\n[[ranges]]\nname = 'x'\ntarget = 't'\n"
                       << "functions = ['^shapes::tail_virtul\\(|^other::recursive\\(']\n";
    const Listed listed = list({"--probe-map", map, "--file", matrix_program("gcc_O2")});
    EXPECT_EQ(listed.status, 67);
    EXPECT_NE(listed.output.find("# x: not found: no function matches"), std::string::npos) << listed.output;
    EXPECT_NE(listed.output.find("#   near: shapes::recursive(int)"), std::string::npos) << listed.output;
}

TEST(Probes, NamesWhatWasMisspelt) {
    const std::string map = scratch_file("misspelt.toml");
    // All functions of the namespace have its name; one has nearly the other.
    std::ofstream(map) << "version = 1\n[targets.t]\nfiles = ['matrix_*']\n[[ranges]]\nname = 'x'\ntarget = 't'\n"
                       << "functions = ['^shapes::recusrive\\(']\n";
    const Listed listed = list({"--probe-map", map, "--file", matrix_program("gcc_O2")});
    const std::size_t first = listed.output.find("#   near: ");
    ASSERT_NE(first, std::string::npos) << listed.output;
    EXPECT_TRUE(listed.output.substr(first).starts_with("#   near: shapes::recursive(int)")) << listed.output;
}

TEST(Probes, RefusesWhatItCannotDo) {
    const std::string file = matrix_program("gcc_O2");
    const auto expect = [](const Listed& listed, int status, const std::string& text) {
        EXPECT_EQ(listed.status, status);
        EXPECT_NE(listed.error.find(text), std::string::npos) << listed.error;
        EXPECT_NE(listed.error.find("hint: "), std::string::npos) << listed.error;
        EXPECT_EQ(listed.output, "");
    };
    expect(list({}), 64, "name either processes or files");
    expect(list({"--probe-map", matrix_map(), "--file", file, "--range", "leav"}), 64, "has no range 'leav'");
    expect(list({"--probe-map", matrix_map(), "--file", "/no/such/file"}), 64, "no such file");
    expect(list({"--probe-map", matrix_map(), "--file", "/bin/sh"}), 68, "no target of the probe map has such a name");
    expect(list({"--probe-map", matrix_map(), "--file", file, "--max-sites", "5"}), 71, "more than --max-sites=5");
    expect(list({"--probe-map", matrix_map(), "--pid", "4194304"}), 66, "there is no process 4194304");
    expect(list({"--fil", file}), 64, "not understood: --fil");
    expect(list({"--probe-map", "/dev/zero", "--file", file}), 78, "larger than 16 MiB");
    expect(list({"--probe-map", matrix_map(), "--file", file, "--debug-dir", "/no/such/folder"}), 64,
           "/no/such/folder");
    expect(list({"--probe-map", matrix_map(), "--file", file, "--return-probes", "ert"}), 64,
           "\"ert\" is none of auto, ret, uretprobe");
    expect(list({"--probe-map", matrix_map(), "--pid", "2"}), 66, "kernel thread");
}

TEST(Probes, SaysThatAFileHasBeenCutOff) {
    const std::string cut = strip("cut").folder + "/matrix_cut";
    run("head -c 8000 " + matrix_program("gcc_O2") + " > " + cut);
    const Listed listed = list({"--probe-map", matrix_map(), "--file", cut});
    EXPECT_NE(listed.output.find("# it has been cut off"), std::string::npos) << listed.output << listed.error;
    EXPECT_EQ(listed.output.find("stripped"), std::string::npos) << listed.output;
}

// An executable segment that ends before the code of functions with inlined calls.
TEST(Probes, SurvivesCodeThatIsNotInTheFile) {
    const std::string program = strip("short").folder + "/matrix_short";
    std::ifstream original(matrix_program("gcc_O2"), std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(original), {});
    Elf64_Ehdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    std::uint64_t code_bytes = 0, at = 0;
    for (unsigned i = 0; i < header.e_phnum; ++i) {
        Elf64_Phdr segment;
        std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof segment, sizeof segment);
        if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0) continue;
        code_bytes = segment.p_filesz;
        at = header.e_phoff + i * sizeof segment + offsetof(Elf64_Phdr, p_filesz);
    }
    ASSERT_GT(code_bytes, 0u);
    bool was_refused = false;
    for (std::uint64_t size = code_bytes; size > 16; size -= std::min<std::uint64_t>(size, 100)) {
        std::memcpy(bytes.data() + at, &size, sizeof size);
        std::ofstream(program, std::ios::binary) << bytes;
        const Listed listed = list({"--json", "--probe-map", matrix_map(), "--file", program});
        ASSERT_TRUE(listed.status == 0 || listed.status == 67) << size << ": " << listed.status << listed.error;
        const nlohmann::json listing = listed.json();
        for (const nlohmann::json& one : listing.at("files").at(0).at("inlined"))
            was_refused |= one.at("placed") != one.at("total");
    }
    EXPECT_TRUE(was_refused);
}

TEST(Probes, EndsQuietlyWhenNobodyReads) {
    Child shell({"/bin/bash", "-c",
                 profiler_path() + " probes --json --probe-map " + matrix_map() + " --file " +
                     matrix_program("gcc_O2") + " | (exec true); echo ${PIPESTATUS[0]}"});
    EXPECT_EQ(shell.finish(), 0);
    EXPECT_EQ(shell.output(), std::to_string(128 + SIGPIPE) + "\n");
    EXPECT_EQ(shell.error(), "");
}

}  // namespace
}  // namespace hostrange::test
