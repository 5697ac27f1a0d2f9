-- What a stream entry says, and the id under which `claim` adopts one that somebody else wrote.
local function field(fields, name)
  for i = 1, #fields - 1, 2 do
    if fields[i] == name then return fields[i + 1] end
  end
end

local ADOPTED = '^malformed%-[hnl]%-%d+%-%d+$'
local function adopted_id(letter, entry) return 'malformed-' .. letter .. '-' .. entry end
